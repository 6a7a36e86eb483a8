package io.sluice;

import java.net.URI;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileContext;
import org.apache.hadoop.fs.FileSystem;

/**
 * The volume of the tests. The property sluice.test.meta names its metadata; core-site.xml of the
 * tests refers to it.
 */
public final class Volumes {
  public static final String URI = "sluice://test/";

  private Volumes() {}

  /** A file system of its own, as the user who runs the tests: the superuser. */
  public static FileSystem fileSystem() throws Exception {
    return FileSystem.newInstance(new URI(URI), new Configuration());
  }

  /** As {@link #fileSystem}, but this user is nobody special. */
  public static Configuration ordinaryUser() {
    Configuration conf = new Configuration();
    conf.set("sluice.superuser", "nobody-else");
    // Others than the superuser cannot write where that works.
    conf.set("dfs.user.home.dir.prefix", "/ordinary");
    return conf;
  }

  public static FileContext fileContext() throws Exception {
    return FileContext.getFileContext(new URI(URI), new Configuration());
  }
}
