package io.sluice;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.EnumSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.XAttrSetFlag;
import org.apache.hadoop.fs.permission.AclEntry;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.security.AccessControlException;
import org.junit.jupiter.api.Test;

/**
 * Who may do what. Each row is tried by each user in a directory of its own, here and by the kernel
 * on a mount of the same volume, which must agree. The rows of root and of the superuser are those
 * of Hadoop: root is nobody special, the superuser may do anything.
 */
class TestUsers {
  private static final List<String> USERS = Arrays.asList("ann", "bob", "eve");
  private static final String PASSWD = "ann:70001;bob:70002;eve:70003";
  private static final String GROUPS = "crew:80001:ann,bob;others:80002:eve,root;own:80003:ann";

  private interface Act {
    void run(FileSystem fs, Path dir) throws IOException;
  }

  /** What a user tries, here and, as a line of Python, through the kernel. */
  private static final Map<String, Act> ACTS = new LinkedHashMap<>();
  private static final Map<String, String> KERNEL = new LinkedHashMap<>();

  private static void act(String name, Act act, String kernel) {
    ACTS.put(name, act);
    KERNEL.put(name, kernel);
  }

  private static void read(FileSystem fs, Path path) throws IOException {
    fs.open(path).close();
  }

  private static void append(FileSystem fs, Path path) throws IOException {
    fs.append(path).close();
  }

  static {
    act("read 0600", (fs, d) -> read(fs, new Path(d, "private")), "open(d + '/private')");
    act("read 0640 of a group", (fs, d) -> read(fs, new Path(d, "group")), "open(d + '/group')");
    act("read 0604", (fs, d) -> read(fs, new Path(d, "not-group")), "open(d + '/not-group')");
    act("read 0644", (fs, d) -> read(fs, new Path(d, "public")), "open(d + '/public')");
    act("read by an ACL", (fs, d) -> read(fs, new Path(d, "acl")), "open(d + '/acl')");
    act("append to 0644", (fs, d) -> append(fs, new Path(d, "public")), "open(d + '/public', 'a')");
    act("append to 0660 of a group", (fs, d) -> append(fs, new Path(d, "group-write")), "open(d + '/group-write', 'a')");
    act("truncate 0644", (fs, d) -> fs.truncate(new Path(d, "public"), 0), "os.truncate(d + '/public', 0)");
    act("read below 0700", (fs, d) -> read(fs, new Path(d, "closed/sub/file")), "open(d + '/closed/sub/file')");
    act("status below 0644", (fs, d) -> fs.getFileStatus(new Path(d, "no-search/file")), "os.stat(d + '/no-search/file')");
    act("read below 0711", (fs, d) -> read(fs, new Path(d, "no-list/file")), "open(d + '/no-list/file')");
    act("list 0711", (fs, d) -> fs.listStatus(new Path(d, "no-list")), "os.listdir(d + '/no-list')");
    act("list 0755", (fs, d) -> fs.listStatus(new Path(d, "open")), "os.listdir(d + '/open')");
    act("list 0700", (fs, d) -> fs.listStatus(new Path(d, "closed")), "os.listdir(d + '/closed')");
    act("create in 0755", (fs, d) -> fs.create(new Path(d, "open/new")).close(), "open(d + '/open/new', 'w')");
    act("create in 0775 of a group", (fs, d) -> fs.create(new Path(d, "group-dir/new")).close(), "open(d + '/group-dir/new', 'w')");
    act("mkdir in 0755", (fs, d) -> fs.mkdirs(new Path(d, "open/new")), "os.mkdir(d + '/open/new')");
    act("delete in 0755", (fs, d) -> fs.delete(new Path(d, "open/file"), false), "os.unlink(d + '/open/file')");
    act("delete in 0777", (fs, d) -> fs.delete(new Path(d, "wide/file"), false), "os.unlink(d + '/wide/file')");
    act("delete in 1777", (fs, d) -> fs.delete(new Path(d, "sticky/file"), false), "os.unlink(d + '/sticky/file')");
    act("rename in 1777", (fs, d) -> fs.rename(new Path(d, "sticky/file"), new Path(d, "sticky/b")), "os.rename(d + '/sticky/file', d + '/sticky/b')");
    act("rename from 0777", (fs, d) -> fs.rename(new Path(d, "wide/file"), new Path(d, "open/b")), "os.rename(d + '/wide/file', d + '/open/b')");
    act("chmod", (fs, d) -> fs.setPermission(new Path(d, "public"), new FsPermission((short) 0600)), "os.chmod(d + '/public', 0o600)");
    act("chown", (fs, d) -> fs.setOwner(new Path(d, "public"), "bob", null), "os.chown(d + '/public', 70002, -1)");
    act("chgrp to a group of ann", (fs, d) -> fs.setOwner(new Path(d, "public"), null, "own"), "os.chown(d + '/public', -1, 80003)");
    act("chgrp to a group of eve", (fs, d) -> fs.setOwner(new Path(d, "public"), null, "others"), "os.chown(d + '/public', -1, 80002)");
    act("set times", (fs, d) -> fs.setTimes(new Path(d, "public"), 1000, 2000), "os.utime(d + '/public', (2, 1))");
    act("set an attribute", (fs, d) -> fs.setXAttr(new Path(d, "public"), "user.a", new byte[1], EnumSet.of(XAttrSetFlag.CREATE)), "os.setxattr(d + '/public', 'user.a', b'x')");
    act("get an attribute of 0600", (fs, d) -> fs.getXAttr(new Path(d, "private"), "user.a"), "os.getxattr(d + '/private', 'user.a')");
    act("set an ACL", (fs, d) -> fs.modifyAclEntries(new Path(d, "public"), AclEntry.parseAclSpec("user:eve:r--", true)), "os.setxattr(d + '/public', 'system.posix_acl_access', ACL)");
    act("access", (fs, d) -> fs.access(new Path(d, "group"), org.apache.hadoop.fs.permission.FsAction.READ), "access(d + '/group', os.R_OK)");
  }

  private static Configuration conf() {
    Configuration conf = new Configuration();
    conf.set("sluice.users", PASSWD);
    conf.set("sluice.groups", GROUPS);
    return conf;
  }

  private static void make(FileSystem fs, Path dir) throws Exception {
    fs.mkdirs(dir);
    fs.setPermission(dir, new FsPermission((short) 0777));
    for (String[] file :
        new String[][] {
          {"private", "600"}, {"group", "640"}, {"not-group", "604"}, {"public", "644"}, {"acl", "600"},
          {"group-write", "660"}, {"closed/sub/file", "644"}, {"no-search/file", "644"},
          {"no-list/file", "644"}, {"open/file", "644"}, {"group-dir/file", "644"}, {"wide/file", "644"},
          {"sticky/file", "644"},
        }) {
      Path path = new Path(dir, file[0]);
      Volumes.write(fs, path, new byte[] {1});
      fs.setOwner(path, "ann", "crew");
      fs.setPermission(path, new FsPermission(file[1]));
    }
    for (String[] sub :
        new String[][] {
          {"closed/sub", "755"}, {"closed", "700"}, {"no-search", "644"}, {"no-list", "711"}, {"open", "755"},
          {"group-dir", "775"}, {"wide", "777"}, {"sticky", "1777"},
        }) {
      fs.setOwner(new Path(dir, sub[0]), "ann", "crew");
      fs.setPermission(new Path(dir, sub[0]), new FsPermission(sub[1]));
    }
    fs.setXAttr(new Path(dir, "private"), "user.a", new byte[] {1});
    fs.modifyAclEntries(new Path(dir, "acl"), AclEntry.parseAclSpec("user:eve:r--", true));
  }

  private static String here(FileSystem fs, Act act, Path dir) {
    try {
      act.run(fs, dir);
      return "allowed";
    } catch (AccessControlException e) {
      return "denied";
    } catch (Exception e) {
      return e.toString();
    }
  }

  /** What the kernel says to a user, for each act in a directory of its own. */
  private static List<String> kernel(String uid, String gids, List<Path> dirs) throws Exception {
    StringBuilder program = new StringBuilder();
    program.append("import os, struct, sys\n");
    program.append("def access(path, mode):\n  if not os.access(path, mode): raise PermissionError(13, path)\n");
    program.append("ACL = struct.pack('<I', 2) + b''.join(struct.pack('<HHI', *e) for e in"
        + " [(1, 6, 2**32 - 1), (2, 4, 70003), (4, 4, 2**32 - 1), (16, 4, 2**32 - 1), (32, 4, 2**32 - 1)])\n");
    program.append("os.setgroups([" + gids + "]); os.setgid([" + gids + "][0]); os.setuid(" + uid + ")\n");
    int i = 0;
    for (String line : KERNEL.values()) {
      String dir = System.getProperty("sluice.test.mount") + dirs.get(i++);
      program.append("d = '" + dir + "'\n");
      program.append("try:\n  " + line + "\n  print('allowed')\n");
      program.append("except PermissionError: print('denied')\n");
      program.append("except Exception as e: print(e)\n");
    }
    Process python = new ProcessBuilder("/usr/bin/python3", "-").redirectErrorStream(true).start();
    python.getOutputStream().write(program.toString().getBytes(StandardCharsets.UTF_8));
    python.getOutputStream().close();
    String out = new String(python.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
    assertEquals(0, python.waitFor(), out);
    return Arrays.asList(out.trim().split("\n"));
  }

  @Test
  void usersMayDoWhatTheKernelLetsThem() throws Exception {
    String mount = System.getProperty("sluice.test.mount", "");
    assumeTrue(!mount.isEmpty(), "no mount");
    Map<String, String> ids = Map.of("ann", "70001", "bob", "70002", "eve", "70003");
    Map<String, String> groups = Map.of("ann", "80001, 80003", "bob", "80001", "eve", "80002");
    Path root = Volumes.fresh("users");
    List<String> wrong = new ArrayList<>();
    int rows = 0;
    try (FileSystem fs = Volumes.fileSystem(conf())) {
      fs.mkdirs(root);
      fs.setPermission(root, new FsPermission((short) 0777));
      for (String user : USERS) {
        List<Path> dirs = new ArrayList<>();
        List<String> found = new ArrayList<>();
        try (FileSystem mine = Volumes.as(conf(), user)) {
          for (Map.Entry<String, Act> act : ACTS.entrySet()) {
            Path dir = new Path(root, user + rows);
            make(fs, dir);
            found.add(here(mine, act.getValue(), dir));
            Path other = new Path(root, user + rows++ + "-kernel");
            make(fs, other);
            dirs.add(other);
          }
        }
        List<String> expected = kernel(ids.get(user), groups.get(user), dirs);
        int i = 0;
        for (String name : ACTS.keySet()) {
          if (!expected.get(i).equals(found.get(i))) {
            wrong.add(user + ": " + name + ": " + found.get(i) + ", the kernel: " + expected.get(i));
          }
          i++;
        }
      }
      fs.delete(root, true);
    }
    assertEquals(List.of(), wrong);
    assertEquals(USERS.size() * ACTS.size(), rows);
  }

  @Test
  void rootIsNobodySpecialAndTheSuperuserMayDoAnything() throws Exception {
    Path root = Volumes.fresh("root");
    Configuration conf = conf();
    conf.set("sluice.superuser", "chief");
    List<String> wrong = new ArrayList<>();
    try (FileSystem fs = Volumes.as(conf, "chief");
        FileSystem asRoot = Volumes.as(conf, "root", "others");
        FileSystem asEve = Volumes.as(conf, "eve", "others")) {
      fs.mkdirs(root);
      fs.setPermission(root, new FsPermission((short) 0777));
      int number = 0;
      for (Map.Entry<String, Act> act : ACTS.entrySet()) {
        Path dir = new Path(root, "chief" + number);
        make(fs, dir);
        String chief = here(fs, act.getValue(), dir);
        if (!chief.equals("allowed")) {
          wrong.add("superuser: " + act.getKey() + ": " + chief);
        }
        Path forRoot = new Path(root, "root" + number);
        Path forEve = new Path(root, "eve" + number++);
        make(fs, forRoot);
        make(fs, forEve);
        String found = here(asRoot, act.getValue(), forRoot);
        String expected = act.getKey().equals("read by an ACL") ? "denied" : here(asEve, act.getValue(), forEve);
        if (!found.equals(expected)) {
          wrong.add("root: " + act.getKey() + ": " + found + ", another user: " + expected);
        }
      }
      fs.delete(root, true);
    }
    assertEquals(List.of(), wrong);
  }

  @Test
  void membersOfTheSupergroupMayDoAnythingAndOwnWhatTheyMake() throws Exception {
    Path dir = Volumes.fresh("supergroup");
    Configuration conf = new Configuration();
    conf.set("sluice.supergroup", "admins");
    try (FileSystem fs = Volumes.fileSystem(conf);
        FileSystem zoe = Volumes.as(conf, "zoe", "staff", "admins")) {
      Volumes.write(fs, new Path(dir, "a"), new byte[1]);
      fs.setPermission(new Path(dir, "a"), new FsPermission((short) 0));
      read(zoe, new Path(dir, "a"));
      Volumes.write(zoe, new Path(dir, "b"), new byte[1]);
      assertEquals("zoe", fs.getFileStatus(new Path(dir, "b")).getOwner());
      assertEquals("staff", fs.getFileStatus(new Path(dir, "b")).getGroup());
      fs.delete(dir, true);
    }
  }

  @Test
  void whatIsDeniedIsSaidAsHdfsSaysIt() throws Exception {
    Path dir = Volumes.fresh("denied");
    try (FileSystem fs = Volumes.fileSystem(conf());
        FileSystem eve = Volumes.as(conf(), "eve")) {
      make(fs, dir);
      String path = dir.toUri().getPath();
      assertEquals(
          "Permission denied: user=eve, access=READ, inode=\"" + path + "/private\":ann:crew:-rw-------",
          denied(() -> read(eve, new Path(dir, "private"))));
      assertEquals(
          "Permission denied: user=eve, access=WRITE, inode=\"" + path + "/open\":ann:crew:drwxr-xr-x",
          denied(() -> eve.create(new Path(dir, "open/new")).close()));
      assertEquals(
          "Permission denied: user=eve, access=WRITE, inode=\"" + path + "/open\":ann:crew:drwxr-xr-x",
          denied(() -> eve.delete(new Path(dir, "open/file"), false)));
      assertEquals(
          "Permission denied: user=eve, access=EXECUTE, inode=\"" + path + "/closed\":ann:crew:drwx------",
          denied(() -> read(eve, new Path(dir, "closed/sub/file"))));
      assertEquals(
          "Permission denied: user=eve, access=EXECUTE, inode=\"" + path + "/closed\":ann:crew:drwx------",
          denied(() -> eve.getFileStatus(new Path(dir, "closed/sub/file"))));
      assertEquals(
          "Permission denied. user=eve is not the owner of inode=" + path + "/public",
          denied(() -> eve.setPermission(new Path(dir, "public"), new FsPermission((short) 0))));
      fs.delete(dir, true);
    }
  }

  private interface Run {
    void run() throws IOException;
  }

  private static String denied(Run run) throws IOException {
    try {
      run.run();
      return "allowed";
    } catch (AccessControlException e) {
      return e.getMessage();
    }
  }
}
