package io.sluice;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.ConcurrentHashMap;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.security.UserGroupInformation;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * A volume as one user sees it: the handle of the native library, and the names of users.
 *
 * <p>What must stay true: the lists of users and groups are read anew at least every minute in
 * which somebody uses the file system. If one cannot be read, the last one counts.
 */
final class Session implements Acls.Names {
  private static final Logger LOG = LoggerFactory.getLogger(SluiceFileSystem.class);
  private static final Pattern USER = Pattern.compile("[a-zA-Z0-9_-]+:[0-9]+");
  private static final Pattern GROUP = Pattern.compile("[a-zA-Z0-9_-]+:[0-9]+:[,a-zA-Z0-9_-]+");

  private final Configuration conf;
  private final Settings settings;
  private final String authority;
  private final String url;
  private final byte[] options;
  private final long reloadNanos;
  final String user;
  private final String groups;
  private final String superuser;
  private final String supergroup;

  private volatile long handle;
  /** The handle before the last reload: calls that began with it may still need it. 0 for none. */
  private long retired;
  private volatile boolean closed;
  private volatile long checked;
  private String users;
  private String members;
  // Names by numbers, which the native library keeps too: this saves the way there.
  private volatile Map<Integer, String> userNames = new ConcurrentHashMap<>();
  private volatile Map<Integer, String> groupNames = new ConcurrentHashMap<>();

  Session(Configuration conf, Settings settings, String authority) throws IOException {
    this.conf = conf;
    this.settings = settings;
    this.authority = authority;
    url = settings.get("meta", "");
    if (url.isEmpty()) {
      throw new IOException("no setting says where the metadata of the volume " + settings.volume
          + " is: set sluice." + settings.volume + ".meta or sluice.meta to its URL");
    }
    options = settings.options();
    reloadNanos = (long) (Double.parseDouble(settings.get("users-reload", "60")) * 1e9);
    UserGroupInformation ugi = UserGroupInformation.getCurrentUser();
    user = ugi.getShortUserName();
    groups = String.join(",", ugi.getGroupNames());
    superuser = settings.get("superuser", "hdfs");
    supergroup = settings.get("supergroup", conf.get("dfs.permissions.superusergroup", "supergroup"));
    users = list("users", USER, "");
    members = list("groups", GROUP, "");
    checked = System.nanoTime();
    handle = open(user, groups, users, members);
  }

  private long open(String user, String groups, String users, String members) throws IOException {
    byte[] who =
        new Record()
            .add(user)
            .add(groups)
            .add(superuser)
            .add(supergroup)
            .add(users)
            .add(members)
            .toBytes();
    try {
      return Native.open(Record.bytes(url), options, who);
    } catch (NativeException e) {
      throw new IOException("the volume " + settings.volume + " cannot be opened: " + e.getMessage(), e);
    }
  }

  /** The handle. */
  long get() throws IOException {
    if (closed) {
      throw new IOException("Filesystem closed");
    }
    if (System.nanoTime() - checked > reloadNanos) {
      reload();
    }
    return handle;
  }

  private synchronized void reload() {
    if (System.nanoTime() - checked < reloadNanos || closed) {
      return;
    }
    checked = System.nanoTime();
    try {
      String newUsers = list("users", USER, users);
      String newMembers = list("groups", GROUP, members);
      if (!Objects.equals(newUsers, users) || !Objects.equals(newMembers, members)) {
        long newer = open(user, groups, newUsers, newMembers);
        long oldest = retired;
        retired = handle;
        handle = newer;
        users = newUsers;
        members = newMembers;
        userNames = new ConcurrentHashMap<>();
        groupNames = new ConcurrentHashMap<>();
        Native.close(oldest);
      }
    } catch (IOException e) {
      LOG.warn("the lists of users and groups stay as they were", e);
    }
  }

  /** A list: what the setting says itself, or the content of the file that it names. */
  private String list(String key, Pattern line, String otherwise) throws IOException {
    String value = settings.get(key, "");
    if (value.isEmpty()) {
      return "";
    }
    List<String> lines = new ArrayList<>();
    for (Matcher matcher = line.matcher(value); !value.contains("/") && matcher.find(); ) {
      lines.add(matcher.group());
    }
    if (!lines.isEmpty()) {
      return String.join("\n", lines);
    }
    try {
      Path path = new Path(value);
      String host = path.toUri().getAuthority();
      boolean own = host == null ? path.toUri().getScheme() == null : host.equals(authority);
      return own ? ownFile(path.toUri().getPath()) : foreignFile(path);
    } catch (IOException e) {
      LOG.warn("the list in {} cannot be read: {}", value, e.toString());
      return otherwise;
    }
  }

  private String foreignFile(Path path) throws IOException {
    FileSystem fs = path.getFileSystem(conf);
    byte[] bytes = new byte[(int) fs.getFileStatus(path).getLen()];
    try (org.apache.hadoop.fs.FSDataInputStream in = fs.open(path)) {
      in.readFully(0, bytes);
    }
    return new String(bytes, StandardCharsets.UTF_8);
  }

  /** A file of the volume itself, as its superuser reads it. */
  private String ownFile(String path) throws IOException {
    long reader = open(superuser, "", "", "");
    try {
      long file = Native.openFile(reader, Record.bytes(path), Native.READ, 0, 0);
      try {
        byte[] bytes = new byte[(int) Native.length(file)];
        int read = Native.read(file, 0, bytes, 0, bytes.length);
        return new String(bytes, 0, read, StandardCharsets.UTF_8);
      } finally {
        Native.closeFile(file);
      }
    } finally {
      Native.close(reader);
    }
  }

  boolean isSuperuser() throws IOException {
    return Native.isSuperuser(get());
  }

  @Override
  public int id(boolean group, String name) throws IOException {
    return Native.idOf(get(), group, Record.bytes(name));
  }

  @Override
  public String name(boolean group, int id) throws IOException {
    Map<Integer, String> names = group ? groupNames : userNames;
    String known = names.get(id);
    if (known == null) {
      known = Record.text(Native.nameOf(get(), group, id));
      // A number without a name may get one.
      if (!known.equals(Integer.toUnsignedString(id))) {
        names.put(id, known);
      }
    }
    return known;
  }

  /** Name of the volume, and its bytes in all, those in use, inodes in use. */
  ByteBuffer volume() throws IOException {
    return ByteBuffer.wrap(Native.volume(get()));
  }

  synchronized void close() throws IOException {
    if (!closed) {
      closed = true;
      Native.close(retired);
      Native.close(handle);
    }
  }
}
