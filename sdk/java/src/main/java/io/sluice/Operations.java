package io.sluice;

import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.atomic.LongAdder;
import org.apache.hadoop.fs.StorageStatistics;

/** How often each operation was called, by the names of {@code StorageStatistics.CommonStatisticNames}. */
final class Operations extends StorageStatistics {
  static final String NAME = "SluiceOperations";

  private final Map<String, LongAdder> counts = new TreeMap<>();

  Operations() {
    super(NAME);
    for (String name :
        new String[] {
          CommonStatisticNames.OP_APPEND,
          CommonStatisticNames.OP_CREATE,
          CommonStatisticNames.OP_CREATE_NON_RECURSIVE,
          CommonStatisticNames.OP_DELETE,
          CommonStatisticNames.OP_GET_CONTENT_SUMMARY,
          CommonStatisticNames.OP_GET_FILE_CHECKSUM,
          CommonStatisticNames.OP_GET_FILE_STATUS,
          CommonStatisticNames.OP_GET_STATUS,
          CommonStatisticNames.OP_LIST_STATUS,
          CommonStatisticNames.OP_MKDIRS,
          CommonStatisticNames.OP_MODIFY_ACL_ENTRIES,
          CommonStatisticNames.OP_OPEN,
          CommonStatisticNames.OP_REMOVE_ACL,
          CommonStatisticNames.OP_REMOVE_ACL_ENTRIES,
          CommonStatisticNames.OP_REMOVE_DEFAULT_ACL,
          CommonStatisticNames.OP_RENAME,
          CommonStatisticNames.OP_SET_ACL,
          CommonStatisticNames.OP_SET_OWNER,
          CommonStatisticNames.OP_SET_PERMISSION,
          CommonStatisticNames.OP_SET_TIMES,
          CommonStatisticNames.OP_TRUNCATE,
        }) {
      counts.put(name, new LongAdder());
    }
  }

  void count(String name) {
    counts.get(name).increment();
  }

  @Override
  public Iterator<LongStatistic> getLongStatistics() {
    List<LongStatistic> all = new ArrayList<>();
    counts.forEach((name, count) -> all.add(new LongStatistic(name, count.sum())));
    return all.iterator();
  }

  @Override
  public Long getLong(String key) {
    LongAdder count = counts.get(key);
    return count == null ? null : count.sum();
  }

  @Override
  public boolean isTracked(String key) {
    return counts.containsKey(key);
  }

  @Override
  public void reset() {
    counts.values().forEach(LongAdder::reset);
  }
}
