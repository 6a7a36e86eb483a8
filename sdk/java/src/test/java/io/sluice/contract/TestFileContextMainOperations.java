package io.sluice.contract;

import io.sluice.Volumes;
import java.net.URI;
import org.apache.hadoop.fs.FileContext;
import org.apache.hadoop.fs.FileContextMainOperationsBaseTest;

/** Hadoop's tests of the main operations, through a file context. */
public class TestFileContextMainOperations extends FileContextMainOperationsBaseTest {
  @Override
  @org.junit.Before
  @org.junit.jupiter.api.BeforeEach
  public void setUp() throws Exception {
    fc = FileContext.getFileContext(new URI(Volumes.URI), Volumes.ordinaryUser());
    super.setUp();
  }

  @Override
  protected boolean listCorruptedBlocksSupported() {
    return false;
  }
}
