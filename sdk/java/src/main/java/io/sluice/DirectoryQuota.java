package io.sluice;

import java.nio.ByteBuffer;
import org.apache.hadoop.fs.ContentSummary;
import org.apache.hadoop.fs.QuotaUsage;

/**
 * The quota of a directory in the terms of HDFS.
 *
 * <p>What must stay true: a namespace quota of HDFS counts the directory itself, a quota of a volume
 * does not. So the one is greater by 1 than the other.
 */
final class DirectoryQuota {
  private final long inodes;
  private final long space;
  private final long usedInodes;
  private final long usedSpace;

  /** @param record as the native library gives it */
  DirectoryQuota(ByteBuffer record) {
    inodes = record.getLong();
    space = record.getLong();
    usedInodes = record.getLong();
    usedSpace = record.getLong();
  }

  boolean exists() {
    return inodes > 0 || space > 0;
  }

  QuotaUsage usage() {
    return new QuotaUsage.Builder()
        .fileAndDirectoryCount(usedInodes + 1)
        .quota(namespace())
        .spaceConsumed(usedSpace)
        .spaceQuota(space)
        .build();
  }

  /** Adds the limits to a summary. What is consumed is what counts against them. */
  ContentSummary.Builder addTo(ContentSummary.Builder summary, long length) {
    return summary
        .quota(namespace())
        .spaceQuota(space)
        .spaceConsumed(exists() ? usedSpace : length);
  }

  private long namespace() {
    return inodes > 0 ? inodes + 1 : -1;
  }

  /** The limit of inodes of a volume that a namespace quota means. */
  static long inodes(long quota) {
    if (quota == 1) {
      throw new IllegalArgumentException(
          "a namespace quota of 1 would keep the directory empty, which a volume cannot");
    }
    return isLimit(quota, "namespace") ? quota - 1 : keptOrNone(quota);
  }

  /** The limit of bytes of a volume that a storage space quota means. */
  static long space(long quota) {
    return isLimit(quota, "storage space") ? quota : keptOrNone(quota);
  }

  private static boolean isLimit(long quota, String kind) {
    if (quota <= 0 && quota != SluiceFileSystem.QUOTA_RESET) {
      throw new IllegalArgumentException("Invalid value for a " + kind + " quota: " + quota);
    }
    return quota > 0 && quota != SluiceFileSystem.QUOTA_DONT_SET;
  }

  private static long keptOrNone(long quota) {
    return quota == SluiceFileSystem.QUOTA_DONT_SET ? -1 : 0;
  }
}
