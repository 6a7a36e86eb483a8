package io.sluice.bench;

import java.io.File;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hdfs.MiniDFSCluster;

/**
 * A NameNode and a DataNode in a process of their own. Prints the URI, and runs until its input
 * ends. Arguments: a folder, and whether the NameNode syncs its edit log.
 */
public final class Hdfs {
  private Hdfs() {}

  public static void main(String[] args) throws Exception {
    Configuration conf = new Configuration();
    conf.set("hadoop.security.authentication", "simple");
    try (MiniDFSCluster cluster =
        new MiniDFSCluster.Builder(conf, new File(args[0]))
            .numDataNodes(1)
            .skipFsyncForTesting(!Boolean.parseBoolean(args[1]))
            .build()) {
      cluster.waitActive();
      System.out.println(cluster.getURI());
      System.out.flush();
      while (System.in.read() >= 0) {
        // Until the input ends.
      }
    }
  }
}
