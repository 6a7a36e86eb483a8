package io.sluice.contract;

import io.sluice.Volumes;
import java.net.URI;
import org.apache.hadoop.fs.FSMainOperationsBaseTest;
import org.apache.hadoop.fs.FileSystem;

/** Hadoop's tests of the main operations of a file system. */
public class TestFSMainOperations extends FSMainOperationsBaseTest {
  @Override
  protected FileSystem createFileSystem() throws Exception {
    return FileSystem.newInstance(new URI(Volumes.URI), Volumes.ordinaryUser());
  }
}
