package io.sluice;

import java.nio.ByteBuffer;

/** Attributes of a node, as the native library gives them. */
final class Attributes {
  private static final int FILE = 0;
  private static final int DIRECTORY = 1;
  private static final int LINK = 2;

  final long inode;
  private final int kind;
  final boolean hasAcl;
  /** Permission bits: 12. */
  final int mode;
  final int uid;
  final int gid;
  final int links;
  /** Bytes. */
  final long length;
  final long mtimeNanos;
  /** Milliseconds, as the next one. */
  final long mtime;
  final long atime;

  Attributes(ByteBuffer record) {
    inode = record.getLong();
    kind = record.get();
    hasAcl = record.get() != 0;
    mode = record.getInt();
    uid = record.getInt();
    gid = record.getInt();
    links = record.getInt();
    length = record.getLong();
    mtimeNanos = record.getLong();
    mtime = Math.floorDiv(mtimeNanos, 1_000_000L);
    atime = record.getLong();
  }

  boolean isFile() {
    return kind == FILE;
  }

  boolean isDirectory() {
    return kind == DIRECTORY;
  }

  boolean isLink() {
    return kind == LINK;
  }
}
