package io.sluice;

import static io.sluice.SluiceFileSystem.QUOTA_DONT_SET;
import static io.sluice.SluiceFileSystem.QUOTA_RESET;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.FileNotFoundException;
import java.io.IOException;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.ClusterStorageCapacityExceededException;
import org.apache.hadoop.fs.ContentSummary;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.PathIsNotDirectoryException;
import org.apache.hadoop.fs.QuotaUsage;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.security.AccessControlException;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** Quotas, as HDFS has them. */
class TestQuotas {
  private static final long UNIT = 4096;

  private SluiceFileSystem fs;
  private Path dir;

  @BeforeEach
  void open() throws Exception {
    fs = (SluiceFileSystem) Volumes.fileSystem();
    dir = Volumes.fresh("quotas");
    fs.mkdirs(dir);
  }

  @AfterEach
  void close() throws Exception {
    fs.delete(dir, true);
    fs.close();
  }

  private static void assertUsage(QuotaUsage usage, long limit, long count, long spaceLimit, long space) {
    assertEquals(limit, usage.getQuota());
    assertEquals(count, usage.getFileAndDirectoryCount());
    assertEquals(spaceLimit, usage.getSpaceQuota());
    assertEquals(space, usage.getSpaceConsumed());
  }

  @Test
  void whatCountsIsTold() throws Exception {
    Volumes.write(fs, new Path(dir, "a/f"), new byte[5000]);
    assertUsage(fs.getQuotaUsage(dir), -1, 3, -1, 5000);
    fs.setQuota(dir, 4, QUOTA_DONT_SET);
    // The directory a, and two units of the file.
    assertUsage(fs.getQuotaUsage(dir), 4, 3, -1, 3 * UNIT);
    fs.setQuota(dir, QUOTA_DONT_SET, 1 << 20);
    assertUsage(fs.getQuotaUsage(dir), 4, 3, 1 << 20, 3 * UNIT);
    ContentSummary sum = fs.getContentSummary(dir);
    assertUsage(sum, 4, 3, 1 << 20, 3 * UNIT);
    assertEquals(5000, sum.getLength());
    assertEquals(1, sum.getFileCount());
    assertEquals(2, sum.getDirectoryCount());
    fs.setQuota(dir, QUOTA_RESET, QUOTA_DONT_SET);
    assertUsage(fs.getQuotaUsage(dir), -1, 3, 1 << 20, 3 * UNIT);
    fs.setQuota(dir, QUOTA_RESET, QUOTA_RESET);
    assertUsage(fs.getQuotaUsage(dir), -1, 3, -1, 5000);
    assertUsage(fs.getQuotaUsage(new Path(dir, "a/f")), -1, 1, -1, 5000);
  }

  @Test
  void limitsAreEnforced() throws Exception {
    fs.setQuota(dir, 3, QUOTA_DONT_SET);
    fs.mkdirs(new Path(dir, "one"));
    fs.mkdirs(new Path(dir, "two"));
    IOException e = assertThrows(
        ClusterStorageCapacityExceededException.class, () -> fs.mkdirs(new Path(dir, "three")));
    assertTrue(e.getMessage().contains("quota"), e.getMessage());
    fs.setQuota(dir, QUOTA_RESET, 8 * UNIT);
    fs.mkdirs(new Path(dir, "three"));
    assertThrows(
        ClusterStorageCapacityExceededException.class,
        () -> Volumes.write(fs, new Path(dir, "f"), new byte[100_000]));
    fs.setQuota(dir, QUOTA_RESET, QUOTA_RESET);
    Volumes.write(fs, new Path(dir, "f"), new byte[100_000]);
  }

  @Test
  void whatIsWrongIsRefused() throws Exception {
    Path file = new Path(dir, "f");
    Volumes.write(fs, file, new byte[1]);
    assertThrows(PathIsNotDirectoryException.class, () -> fs.setQuota(file, 5, QUOTA_DONT_SET));
    assertThrows(
        FileNotFoundException.class, () -> fs.setQuota(new Path(dir, "none"), 5, QUOTA_DONT_SET));
    assertThrows(FileNotFoundException.class, () -> fs.getQuotaUsage(new Path(dir, "none")));
    for (long wrong : new long[] {0, 1, -2, Long.MIN_VALUE}) {
      assertThrows(IllegalArgumentException.class, () -> fs.setQuota(dir, wrong, QUOTA_DONT_SET));
    }
    assertThrows(IllegalArgumentException.class, () -> fs.setQuota(dir, QUOTA_DONT_SET, 0));
    fs.setQuota(dir, QUOTA_DONT_SET, QUOTA_DONT_SET);
    assertEquals(-1, fs.getQuotaUsage(dir).getQuota());
    fs.setPermission(dir, new FsPermission((short) 0755));
    try (FileSystem eve = Volumes.as(new Configuration(), "eve", "staff")) {
      AccessControlException e =
          assertThrows(
              AccessControlException.class, () -> ((SluiceFileSystem) eve).setQuota(dir, 5, QUOTA_RESET));
      assertEquals("Access denied for user eve. Superuser privilege is required", e.getMessage());
      assertEquals(2, eve.getQuotaUsage(dir).getFileAndDirectoryCount());
    }
  }
}
