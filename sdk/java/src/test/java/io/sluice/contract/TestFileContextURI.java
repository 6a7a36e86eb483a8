package io.sluice.contract;

import io.sluice.Volumes;
import org.apache.hadoop.fs.FileContextURIBase;

/** Hadoop's tests of what a URI names, through file contexts. */
public class TestFileContextURI extends FileContextURIBase {
  @Override
  @org.junit.Before
  @org.junit.jupiter.api.BeforeEach
  public void setUp() throws Exception {
    fc1 = Volumes.fileContext();
    fc2 = Volumes.fileContext();
    super.setUp();
  }
}
