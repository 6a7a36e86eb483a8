package io.sluice.contract;

import io.sluice.Volumes;
import org.apache.hadoop.fs.FileContext;
import org.apache.hadoop.fs.FileContextPermissionBase;

/** Hadoop's tests of permissions, through a file context. */
public class TestFileContextPermission extends FileContextPermissionBase {
  @Override
  protected FileContext getFileContext() throws Exception {
    return Volumes.fileContext();
  }
}
