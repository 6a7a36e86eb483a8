package io.sluice.contract;

import io.sluice.Volumes;
import org.apache.hadoop.fs.FileContextCreateMkdirBaseTest;

/** Hadoop's tests of what is made, through a file context. */
public class TestFileContextCreateMkdir extends FileContextCreateMkdirBaseTest {
  @Override
  @org.junit.Before
  @org.junit.jupiter.api.BeforeEach
  public void setUp() throws Exception {
    fc = Volumes.fileContext();
    super.setUp();
  }
}
