package io.sluice;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The settings of a volume. A key KEY of a volume NAME is looked up as sluice.NAME.KEY, sluice.KEY,
 * juicefs.NAME.KEY and juicefs.KEY, in this order.
 */
final class Settings {
  private static final Logger LOG = LoggerFactory.getLogger(SluiceFileSystem.class);
  private static final String[] PREFIXES = {"sluice.", "juicefs."};

  /** What the native library knows. */
  private static final String[] NATIVE = {
    "read-only", "no-bgjob", "writeback", "subdir", "bucket", "heartbeat", "open-cache", "memory-size",
    "max-readahead", "cache-size", "prefetch", "max-uploads", "max-downloads", "cache-dir", "cache-group",
    "debug",
  };

  /** Variables of the environment that the native library may see: secrets that no file shall have. */
  private static final String[] VARIABLES = {
    "META_PASSWORD", "META_PASSWORD_FILE", "REDIS_PASSWORD", "SENTINEL_PASSWORD", "JFS_RSA_PASSPHRASE",
    "AWS_REGION", "AWS_DEFAULT_REGION",
  };

  private final Configuration conf;
  final String volume;

  /** @param host the host in the URI, which names the volume unless a setting does */
  Settings(Configuration conf, String host) {
    this.conf = conf;
    String named = null;
    for (String prefix : PREFIXES) {
      named = named == null ? conf.getTrimmed(prefix + "name") : named;
    }
    volume = named == null ? host : named;
  }

  String get(String key, String otherwise) {
    for (String prefix : PREFIXES) {
      for (String full : new String[] {prefix + volume + "." + key, prefix + key}) {
        String value = conf.getTrimmed(full);
        if (value != null && !value.isEmpty()) {
          return value;
        }
      }
    }
    return otherwise;
  }

  boolean is(String key, boolean otherwise) {
    return Boolean.parseBoolean(get(key, Boolean.toString(otherwise)));
  }

  /** A size in bytes, where K, M and G are understood. */
  long size(String key, long otherwise) {
    Configuration one = new Configuration(false);
    String value = get(key, null);
    if (value == null) {
      return otherwise;
    }
    one.set(key, value);
    return one.getLongBytes(key, otherwise);
  }

  /** Names and values for the native library; variables of the environment after a "$". */
  byte[] options() {
    Record record = new Record();
    for (String key : NATIVE) {
      String value = get(key, "");
      if (!value.isEmpty()) {
        record.add(key).add(value);
      }
    }
    for (String name : VARIABLES) {
      String value = System.getenv(name);
      if (value != null) {
        record.add("$" + name).add(value);
      }
    }
    return record.toBytes();
  }

  /** Says which settings of the volume mean nothing here. */
  void warn(List<String> known) {
    List<String> unknown = new ArrayList<>();
    for (Map.Entry<String, String> entry : conf) {
      for (String prefix : PREFIXES) {
        if (entry.getKey().startsWith(prefix)) {
          String key = entry.getKey().substring(prefix.length());
          key = key.startsWith(volume + ".") ? key.substring(volume.length() + 1) : key;
          if (!known.contains(key) && !Arrays.asList(NATIVE).contains(key)) {
            unknown.add(entry.getKey());
          }
        }
      }
    }
    if (!unknown.isEmpty()) {
      LOG.debug("Sluice has no use for {}", unknown);
    }
  }
}
