package io.sluice.contract;

import io.sluice.Volumes;
import java.net.URI;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.FileSystemContractBaseTest;

/** Hadoop's older tests of what a file system keeps to. */
public class TestFileSystemContract extends FileSystemContractBaseTest {
  // Of the two annotations, one is that of the runner of this version of Hadoop.
  @org.junit.Before
  @org.junit.jupiter.api.BeforeEach
  public void setUp() throws Exception {
    Configuration conf = new Configuration();
    conf.set("fs.permissions.umask-mode", TEST_UMASK);
    fs = FileSystem.newInstance(new URI(Volumes.URI), conf);
  }
}
