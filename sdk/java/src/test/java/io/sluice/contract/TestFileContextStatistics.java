package io.sluice.contract;

import static org.assertj.core.api.Assertions.assertThat;

import io.sluice.Volumes;
import java.net.URI;
import org.apache.hadoop.fs.FCStatisticsBaseTest;
import org.apache.hadoop.fs.FileContext;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;

/** Hadoop's tests of what is counted. */
public class TestFileContextStatistics extends FCStatisticsBaseTest {
  @org.junit.Before
  @org.junit.jupiter.api.BeforeEach
  public void setUp() throws Exception {
    fc = Volumes.fileContext();
    FileContext.clearStatistics();
    fc.mkdir(fileContextTestHelper.getTestRootPath(fc, "test"), null, true);
  }

  @org.junit.After
  @org.junit.jupiter.api.AfterEach
  public void tearDown() throws Exception {
    fc.delete(fileContextTestHelper.getTestRootPath(fc, "test"), true);
  }

  @Override
  protected void verifyReadBytes(FileSystem.Statistics statistics) {
    // One read at the cursor of one block, and a positional one.
    assertThat(statistics.getBytesRead()).isEqualTo(2 * blockSize);
  }

  @Override
  protected void verifyWrittenBytes(FileSystem.Statistics statistics) {
    assertThat(statistics.getBytesWritten()).isEqualTo(blockSize * numBlocks);
  }

  @Override
  protected URI getFsUri() {
    return new Path(Volumes.URI).toUri();
  }
}
