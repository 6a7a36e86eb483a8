package io.sluice;

import org.apache.hadoop.fs.EtagSource;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.permission.FsPermission;

/** A status that knows the inode, by which a path handle finds the file again. */
class SluiceFileStatus extends FileStatus implements EtagSource {
  private static final long serialVersionUID = 1;

  private final long inode;

  private final String etag;

  SluiceFileStatus(
      Attributes attributes, long blockSize, String owner, String group, Path link, Path path) {
    super(
        attributes.isDirectory() ? 0 : attributes.length,
        attributes.isDirectory(),
        attributes.isDirectory() ? 0 : 1,
        attributes.isDirectory() ? 0 : blockSize,
        attributes.mtime,
        attributes.atime,
        new FsPermission((short) (attributes.mode & 01777)),
        owner,
        group,
        link,
        path,
        attributes.hasAcl,
        false,
        false);
    inode = attributes.inode;
    etag = attributes.inode + "-" + attributes.mtimeNanos + "-" + attributes.length;
  }

  /** Another one after every change of the content; the same after a rename. */
  @Override
  public String getEtag() {
    return isFile() ? etag : null;
  }

  /** 0 if it is not known. */
  long inode() {
    return inode;
  }
}
