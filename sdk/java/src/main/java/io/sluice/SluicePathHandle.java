package io.sluice;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.Arrays;
import org.apache.hadoop.fs.InvalidPathHandleException;
import org.apache.hadoop.fs.PathHandle;

/** A file that is found again, if what the handle insists on did not change. */
final class SluicePathHandle implements PathHandle {
  private static final long serialVersionUID = 1;
  private static final int MAGIC = 0x534c4531;

  final long inode;
  /** The path; empty if the file may have moved. */
  final String path;
  /** -1 if the content may have changed; the next one, too. */
  final long mtime;
  final long length;

  SluicePathHandle(long inode, String path, long mtime, long length) {
    this.inode = inode;
    this.path = path;
    this.mtime = mtime;
    this.length = length;
  }

  static SluicePathHandle of(PathHandle handle) throws IOException {
    if (handle instanceof SluicePathHandle) {
      return (SluicePathHandle) handle;
    }
    ByteBuffer in = handle.bytes();
    if (in.remaining() < 32 || in.getInt() != MAGIC) {
      throw new InvalidPathHandleException("this is no handle of Sluice");
    }
    long inode = in.getLong();
    long mtime = in.getLong();
    long length = in.getLong();
    return new SluicePathHandle(inode, Record.text(Record.take(in)), mtime, length);
  }

  @Override
  public ByteBuffer bytes() {
    byte[] name = Record.bytes(path);
    ByteBuffer out = ByteBuffer.allocate(32 + name.length);
    out.putInt(MAGIC).putLong(inode).putLong(mtime).putLong(length).putInt(name.length).put(name);
    out.flip();
    return out;
  }

  @Override
  public boolean equals(Object other) {
    return other instanceof PathHandle && bytes().equals(((PathHandle) other).bytes());
  }

  @Override
  public int hashCode() {
    return Arrays.hashCode(bytes().array());
  }
}
