package io.sluice.contract;

import io.sluice.Volumes;
import org.apache.hadoop.fs.FileContextUtilBase;

/** Hadoop's tests of copies, through a file context. */
public class TestFileContextUtil extends FileContextUtilBase {
  @Override
  @org.junit.Before
  @org.junit.jupiter.api.BeforeEach
  public void setUp() throws Exception {
    fc = Volumes.fileContext();
    super.setUp();
  }
}
