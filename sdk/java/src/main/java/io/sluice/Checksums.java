package io.sluice;

import java.io.IOException;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.CompositeCrcFileChecksum;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FileChecksum;
import org.apache.hadoop.fs.MD5MD5CRC32CastagnoliFileChecksum;
import org.apache.hadoop.fs.MD5MD5CRC32FileChecksum;
import org.apache.hadoop.fs.MD5MD5CRC32GzipFileChecksum;
import org.apache.hadoop.io.MD5Hash;
import org.apache.hadoop.util.DataChecksum;

/**
 * Checksums of files that equal those of HDFS, so that DistCp can compare the two. They are made by
 * reading the file. Those of COMPOSITE_CRC are equal for any size of blocks; those of MD5MD5CRC only
 * if sizes of blocks and of checksummed parts are the same.
 */
final class Checksums {
  private static final String COMPOSITE = "COMPOSITE_CRC";

  private final DataChecksum.Type type;
  private final boolean composite;
  private final int bytesPerCrc;
  private final long blockSize;

  Checksums(Configuration conf, long blockSize) {
    type = DataChecksum.Type.valueOf(conf.get("dfs.checksum.type", "CRC32C"));
    composite = COMPOSITE.equals(conf.get("dfs.checksum.combine.mode", "MD5MD5CRC"));
    bytesPerCrc = conf.getInt("io.bytes.per.checksum", conf.getInt("dfs.bytes-per-checksum", 512));
    this.blockSize = blockSize;
  }

  /** The checksum of the first {@code length} bytes. */
  FileChecksum of(FSDataInputStream in, long length) throws IOException {
    return composite ? composite(in, length) : md5(in, length);
  }

  private FileChecksum composite(FSDataInputStream in, long length) throws IOException {
    DataChecksum crc = DataChecksum.newDataChecksum(type, bytesPerCrc);
    byte[] part = new byte[1 << 20];
    for (long done = 0; done < length; ) {
      int read = (int) Math.min(part.length, length - done);
      in.readFully(done, part, 0, read);
      crc.update(part, 0, read);
      done += read;
    }
    return new CompositeCrcFileChecksum((int) crc.getValue(), type, bytesPerCrc);
  }

  private FileChecksum md5(FSDataInputStream in, long length) throws IOException {
    MessageDigest file = digest();
    DataChecksum crc = DataChecksum.newDataChecksum(type, bytesPerCrc);
    byte[] part = new byte[bytesPerCrc * Math.max(1, (1 << 20) / bytesPerCrc)];
    long blocks = 0;
    for (long begin = 0; begin < length; begin += blockSize) {
      long size = Math.min(blockSize, length - begin);
      MessageDigest block = digest();
      for (long done = 0; done < size; ) {
        int read = (int) Math.min(part.length, size - done);
        in.readFully(begin + done, part, 0, read);
        for (int at = 0; at < read; at += bytesPerCrc) {
          crc.reset();
          crc.update(part, at, Math.min(bytesPerCrc, read - at));
          int value = (int) crc.getValue();
          block.update(new byte[] {
            (byte) (value >> 24), (byte) (value >> 16), (byte) (value >> 8), (byte) value
          });
        }
        done += read;
      }
      file.update(block.digest());
      blocks++;
    }
    // HDFS says 0 for files of one block, and for empty ones a checksum of nothing.
    long crcPerBlock = blocks > 1 ? blockSize / bytesPerCrc : 0;
    if (length == 0) {
      // What HDFS digests there is a buffer of zeroes.
      return new MD5MD5CRC32GzipFileChecksum(0, 0, MD5Hash.digest(new byte[32]));
    }
    MD5Hash hash = new MD5Hash(file.digest());
    return type == DataChecksum.Type.CRC32C
        ? new MD5MD5CRC32CastagnoliFileChecksum(bytesPerCrc, crcPerBlock, hash)
        : type == DataChecksum.Type.CRC32
            ? new MD5MD5CRC32GzipFileChecksum(bytesPerCrc, crcPerBlock, hash)
            : new MD5MD5CRC32FileChecksum(bytesPerCrc, crcPerBlock, hash);
  }

  private static MessageDigest digest() throws IOException {
    try {
      return MessageDigest.getInstance("MD5");
    } catch (NoSuchAlgorithmException e) {
      throw new IOException("this Java has no MD5", e);
    }
  }
}
