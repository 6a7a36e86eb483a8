package io.sluice.contract;

import io.sluice.Volumes;
import org.apache.hadoop.fs.FileContextMainOperationsBaseTest;

/** Hadoop's tests of the main operations, through a file context. */
public class TestFileContextMainOperations extends FileContextMainOperationsBaseTest {
  @Override
  @org.junit.Before
  @org.junit.jupiter.api.BeforeEach
  public void setUp() throws Exception {
    fc = Volumes.fileContext();
    super.setUp();
  }

  @Override
  protected boolean listCorruptedBlocksSupported() {
    return false;
  }
}
