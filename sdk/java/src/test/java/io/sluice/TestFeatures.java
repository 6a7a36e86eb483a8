package io.sluice;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.FileNotFoundException;
import java.io.IOException;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.EnumSet;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.BlockLocation;
import org.apache.hadoop.fs.ContentSummary;
import org.apache.hadoop.fs.FileChecksum;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.GlobalStorageStatistics;
import org.apache.hadoop.fs.LocatedFileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.PathHandle;
import org.apache.hadoop.fs.RemoteIterator;
import org.apache.hadoop.fs.StorageStatistics;
import org.apache.hadoop.fs.Trash;
import org.apache.hadoop.fs.XAttrSetFlag;
import org.apache.hadoop.fs.permission.AclEntry;
import org.apache.hadoop.fs.permission.AclStatus;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.util.DataChecksum;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** What there is beyond the contract tests of Hadoop. */
class TestFeatures {
  private FileSystem fs;
  private Path dir;

  @BeforeEach
  void open() throws Exception {
    fs = Volumes.fileSystem();
    dir = Volumes.fresh("features");
    fs.mkdirs(dir);
  }

  @AfterEach
  void close() throws Exception {
    fs.delete(dir, true);
    fs.close();
  }

  private static byte[] bytes(String text) {
    return text.getBytes(StandardCharsets.UTF_8);
  }

  @Test
  void theOtherSchemeAndTheOtherKeysReachTheSameVolume() throws Exception {
    Volumes.write(fs, new Path(dir, "f"), bytes("x"));
    Configuration conf = new Configuration(false);
    conf.set("fs.jfs.impl", "io.sluice.SluiceFileSystem");
    conf.set("juicefs.myvol.meta", System.getProperty("sluice.test.meta"));
    conf.set("juicefs.superuser", System.getProperty("user.name"));
    conf.set("juicefs.cache-size", "128");
    conf.set("juicefs.memory-size", "64");
    conf.set("juicefs.push-gateway", "");
    try (FileSystem jfs = FileSystem.newInstance(new URI("jfs://myvol/"), conf)) {
      assertEquals("jfs", jfs.getScheme());
      FileStatus status = jfs.getFileStatus(new Path(dir, "f"));
      assertEquals("jfs://myvol" + dir + "/f", status.getPath().toString());
      assertArrayEquals(bytes("x"), Volumes.read(jfs, status.getPath()));
      assertThrows(IllegalArgumentException.class, () -> jfs.open(new Path("jfs://another/f")));
    }
    conf.unset("juicefs.myvol.meta");
    IOException e =
        assertThrows(IOException.class, () -> FileSystem.newInstance(new URI("jfs://myvol/"), conf));
    assertTrue(e.getMessage().contains("sluice.meta"), e.getMessage());
    conf.set("sluice.meta", System.getProperty("sluice.test.meta"));
    conf.set("sluice.prefetch", "many");
    e = assertThrows(IOException.class, () -> FileSystem.newInstance(new URI("jfs://myvol/"), conf));
    assertTrue(e.getMessage().contains("prefetch = many: it takes a number"), e.getMessage());
  }

  @Test
  void aDirectoryIsListedPageByPage() throws Exception {
    Set<String> expected = new TreeSet<>();
    for (int i = 0; i < 250; i++) {
      Volumes.write(fs, new Path(dir, "n" + i), new byte[0]);
      expected.add("n" + i);
    }
    Configuration conf = new Configuration();
    conf.set("sluice.list-page", "17");
    try (FileSystem small = Volumes.fileSystem(conf)) {
      Set<String> found = new TreeSet<>();
      for (RemoteIterator<FileStatus> items = small.listStatusIterator(dir); items.hasNext(); ) {
        found.add(items.next().getPath().getName());
      }
      assertEquals(expected, found);
      List<String> sorted = new ArrayList<>();
      for (FileStatus status : small.listStatus(dir)) {
        sorted.add(status.getPath().getName());
      }
      assertEquals(new ArrayList<>(expected), sorted);
    }
    assertThrows(FileNotFoundException.class, () -> fs.listStatusIterator(new Path(dir, "none")));
  }

  @Test
  void aclsAreThoseOfHdfs() throws Exception {
    Path file = new Path(dir, "f");
    Volumes.write(fs, file, new byte[0]);
    fs.setPermission(file, new FsPermission((short) 0640));
    assertEquals(List.of(), fs.getAclStatus(file).getEntries());
    fs.modifyAclEntries(file, AclEntry.parseAclSpec("user:ann:rwx,group:crew:r-x", true));
    AclStatus acl = fs.getAclStatus(file);
    assertEquals(AclEntry.parseAclSpec("user:ann:rwx,group::r--,group:crew:r-x", true), acl.getEntries());
    assertTrue(fs.getFileStatus(file).hasAcl());
    assertEquals(0670, fs.getFileStatus(file).getPermission().toShort(), "the mask stands for the group");
    fs.removeAclEntries(file, AclEntry.parseAclSpec("group:crew", false));
    assertEquals(AclEntry.parseAclSpec("user:ann:rwx,group::r--", true), fs.getAclStatus(file).getEntries());
    fs.removeAcl(file);
    assertEquals(List.of(), fs.getAclStatus(file).getEntries());
    assertFalse(fs.getFileStatus(file).hasAcl());
    assertEquals(0640, fs.getFileStatus(file).getPermission().toShort());

    fs.setAcl(dir, AclEntry.parseAclSpec(
        "user::rwx,group::r-x,other::---,default:user:ann:rwx,default:group::r-x", true));
    Volumes.write(fs, new Path(dir, "inherits"), new byte[0]);
    assertTrue(fs.getAclStatus(new Path(dir, "inherits")).getEntries().contains(
        AclEntry.parseAclEntry("user:ann:rwx", true)));
    fs.removeDefaultAcl(dir);
    Volumes.write(fs, new Path(dir, "does-not"), new byte[0]);
    assertEquals(List.of(), fs.getAclStatus(new Path(dir, "does-not")).getEntries());
  }

  @Test
  void attributesAreSetListedAndRemoved() throws Exception {
    fs.setXAttr(dir, "user.a", bytes("1"), EnumSet.of(XAttrSetFlag.CREATE));
    assertThrows(IOException.class, () -> fs.setXAttr(dir, "user.a", bytes("2"), EnumSet.of(XAttrSetFlag.CREATE)));
    fs.setXAttr(dir, "user.a", bytes("2"), EnumSet.of(XAttrSetFlag.REPLACE));
    fs.setXAttr(dir, "trusted.b", bytes("3"));
    assertArrayEquals(bytes("2"), fs.getXAttr(dir, "user.a"));
    assertEquals(Set.of("user.a", "trusted.b"), Set.copyOf(fs.listXAttrs(dir)));
    assertEquals(2, fs.getXAttrs(dir).size());
    fs.removeXAttr(dir, "user.a");
    assertThrows(IOException.class, () -> fs.getXAttr(dir, "user.a"));
    assertThrows(IOException.class, () -> fs.removeXAttr(dir, "user.a"));
    assertThrows(IllegalArgumentException.class, () -> fs.setXAttr(dir, "plain", bytes("")));
  }

  @Test
  void aSnapshotKeepsWhatWas() throws Exception {
    Path file = new Path(dir, "sub/f");
    Volumes.write(fs, file, bytes("before"));
    Path snapshot = fs.createSnapshot(dir, "s1");
    Volumes.write(fs, file, bytes("after"));
    assertArrayEquals(bytes("before"), Volumes.read(fs, new Path(snapshot, "sub/f")));
    Path second = fs.createSnapshot(dir, "s2");
    assertFalse(fs.exists(new Path(second, ".snapshot")), "a snapshot holds no snapshots");
    fs.renameSnapshot(dir, "s1", "s0");
    assertTrue(fs.exists(new Path(dir, ".snapshot/s0/sub/f")));
    assertThrows(IOException.class, () -> fs.createSnapshot(dir, "s2"));
    fs.deleteSnapshot(dir, "s0");
    assertThrows(IOException.class, () -> fs.deleteSnapshot(dir, "s0"));
  }

  @Test
  void whatIsDeletedGoesToTheTrashOfItsUser() throws Exception {
    Configuration conf = new Configuration();
    conf.set("fs.trash.interval", "60");
    Path file = new Path(dir, "f");
    Volumes.write(fs, file, bytes("x"));
    assertTrue(new Trash(fs, conf).moveToTrash(file));
    assertFalse(fs.exists(file));
    Path moved = new Path(fs.getTrashRoot(file) + "/Current" + dir + "/f");
    assertArrayEquals(bytes("x"), Volumes.read(fs, moved));
    fs.delete(fs.getTrashRoot(file), true);
  }

  @Test
  void aSuperuserEmptiesTheTrashOfAll() throws Exception {
    Configuration conf = new Configuration();
    // Minutes.
    conf.set("fs.trash.interval", "0.02");
    conf.set("fs.trash.checkpoint.interval", "0.01");
    conf.set("dfs.user.home.dir.prefix", dir.toUri().getPath() + "/home");
    fs.setPermission(dir, new FsPermission((short) 0777));
    Path file = new Path(dir, "f");
    try (FileSystem zoe = Volumes.as(conf, "zoe")) {
      Volumes.write(zoe, file, bytes("x"));
      assertTrue(new Trash(zoe, conf).moveToTrash(file));
      Path trash = zoe.getTrashRoot(file);
      try (FileSystem emptying = Volumes.fileSystem(conf)) {
        long deadline = System.nanoTime() + 60_000_000_000L;
        while (emptying.listStatus(trash).length > 0) {
          assertTrue(System.nanoTime() < deadline, "it is not emptied");
          Thread.yield();
        }
      }
    }
  }

  @Test
  void checksumsAreThoseOfHdfs() throws Exception {
    Path file = new Path(dir, "f");
    byte[] content = new byte[1_500_000];
    Arrays.fill(content, (byte) 'a');
    Volumes.write(fs, file, content);
    assertNull(fs.getFileChecksum(file), "nobody asked for them");
    Configuration conf = new Configuration();
    conf.set("sluice.file.checksum", "true");
    conf.set("dfs.checksum.combine.mode", "COMPOSITE_CRC");
    DataChecksum crc = DataChecksum.newDataChecksum(DataChecksum.Type.CRC32C, 512);
    crc.update(content, 0, content.length);
    try (FileSystem summing = Volumes.fileSystem(conf)) {
      FileChecksum sum = summing.getFileChecksum(file);
      assertEquals("COMPOSITE-CRC32C", sum.getAlgorithmName());
      assertEquals(String.format("COMPOSITE-CRC32C:0x%08x", (int) crc.getValue()), sum.toString());
      FileChecksum half = summing.getFileChecksum(file, 10);
      assertNotEquals(sum, half);
    }
    conf.set("dfs.checksum.combine.mode", "MD5MD5CRC");
    conf.set("sluice.block.size", "1m");
    try (FileSystem summing = Volumes.fileSystem(conf)) {
      // As `hdfs dfs -checksum` says for such a file with 1 MiB blocks.
      assertEquals("MD5-of-2048MD5-of-512CRC32C", summing.getFileChecksum(file).getAlgorithmName());
    }
  }

  @Test
  void sumsAndPlaces() throws Exception {
    Volumes.write(fs, new Path(dir, "a/f"), new byte[1000]);
    Volumes.write(fs, new Path(dir, "g"), new byte[10]);
    ContentSummary sum = fs.getContentSummary(dir);
    assertEquals(1010, sum.getLength());
    assertEquals(2, sum.getFileCount());
    assertEquals(2, sum.getDirectoryCount());
    assertEquals(-1, sum.getQuota());
    assertTrue(fs.getStatus().getCapacity() > 0);
    Configuration conf = new Configuration();
    conf.set("sluice.block.size", "400");
    try (FileSystem small = Volumes.fileSystem(conf)) {
      FileStatus status = small.getFileStatus(new Path(dir, "a/f"));
      BlockLocation[] blocks = small.getFileBlockLocations(status, 500, 10_000);
      assertEquals(2, blocks.length);
      assertEquals(400, blocks[0].getOffset());
      assertEquals(200, blocks[1].getLength());
      assertArrayEquals(new String[] {"localhost"}, blocks[0].getHosts());
    }
    conf.set("sluice.cache-group", "of-nobody");
    try (FileSystem alone = Volumes.fileSystem(conf)) {
      FileStatus status = alone.getFileStatus(new Path(dir, "a/f"));
      BlockLocation[] blocks = alone.getFileBlockLocations(status, 0, 1000);
      assertEquals(3, blocks.length);
      assertArrayEquals(new String[] {"localhost"}, blocks[2].getHosts());
    }
    fs.setPermission(new Path(dir, "g"), new FsPermission((short) 0));
    try (FileSystem other = Volumes.as(conf, "eve", "others")) {
      RemoteIterator<LocatedFileStatus> listed = other.listFiles(dir, false);
      assertArrayEquals(new String[] {"localhost"}, listed.next().getBlockLocations()[0].getHosts());
    }
  }

  @Test
  void linksAreFollowed() throws Exception {
    Volumes.write(fs, new Path(dir, "f"), bytes("x"));
    Path link = new Path(dir, "link");
    fs.createSymlink(new Path("f"), link, false);
    assertArrayEquals(bytes("x"), Volumes.read(fs, link));
    assertTrue(fs.getFileLinkStatus(link).isSymlink());
    assertTrue(fs.getFileStatus(link).isFile());
    assertEquals(new Path("f"), fs.getLinkTarget(link));
    assertThrows(IOException.class, () -> fs.getLinkTarget(new Path(dir, "f")));
  }

  @Test
  void operationsAreCounted() throws Exception {
    StorageStatistics counts = GlobalStorageStatistics.INSTANCE.get("SluiceOperations");
    long before = counts.getLong("op_mkdirs");
    fs.mkdirs(new Path(dir, "a"));
    assertEquals(before + 1, counts.getLong("op_mkdirs"));
    assertFalse(counts.isTracked("op_unheard_of"));
  }

  @Test
  void listsOfUsersComeFromFilesToo() throws Exception {
    Path users = new Path(dir, "users");
    Volumes.write(fs, users, bytes("zoe:4711\n"));
    Volumes.write(fs, new Path(dir, "groups"), bytes("artists:4712:zoe\n"));
    Configuration conf = new Configuration();
    conf.set("sluice.users", users.toUri().getPath());
    conf.set("sluice.groups", "sluice://test" + dir + "/groups");
    fs.setPermission(dir, new FsPermission((short) 0777));
    try (FileSystem zoe = Volumes.as(conf, "zoe", "ignored")) {
      Volumes.write(zoe, new Path(dir, "hers"), new byte[0]);
      FileStatus status = zoe.getFileStatus(new Path(dir, "hers"));
      assertEquals("zoe:artists", status.getOwner() + ":" + status.getGroup());
    }
    FileStatus plain = fs.getFileStatus(new Path(dir, "hers"));
    assertEquals("4711:4712", plain.getOwner() + ":" + plain.getGroup());
  }

  @Test
  void listsOfUsersAreReadAgain() throws Exception {
    Path users = new Path(dir, "users");
    Path file = new Path(dir, "f");
    Volumes.write(fs, users, bytes("old:4713\n"));
    Volumes.write(fs, file, bytes("x"));
    Configuration conf = new Configuration();
    conf.set("sluice.users", users.toUri().getPath());
    conf.set("sluice.users-reload", "0");
    try (FileSystem reloading = Volumes.fileSystem(conf)) {
      reloading.setOwner(file, "old", null);
      assertEquals("old", reloading.getFileStatus(file).getOwner());
      Volumes.write(fs, users, bytes("new:4713\n"));
      assertEquals("new", reloading.getFileStatus(file).getOwner());
      fs.delete(users, false);
      assertEquals("new", reloading.getFileStatus(file).getOwner(), "the last list counts");
    }
  }

  @Test
  void aHandleGoesThroughBytes() throws Exception {
    Path file = new Path(dir, "f");
    Volumes.write(fs, file, bytes("x"));
    PathHandle handle = fs.getPathHandle(fs.getFileStatus(file));
    SluicePathHandle copy = SluicePathHandle.of(() -> handle.bytes());
    assertEquals(handle, copy);
    assertThrows(IOException.class, () -> SluicePathHandle.of(() -> java.nio.ByteBuffer.allocate(40)));
  }

  @Test
  void capabilitiesAreTold() throws Exception {
    for (String name : new String[] {"acls", "append", "concat", "permissions", "snapshots", "truncate", "xattrs"}) {
      assertTrue(fs.hasPathCapability(dir, "fs.capability.paths." + name), name);
    }
    assertTrue(fs.hasPathCapability(dir, "fs.capability.bulk.delete"));
    assertFalse(fs.hasPathCapability(dir, "fs.capability.paths.checksums"), "they are off");
    assertFalse(fs.hasPathCapability(dir, "fs.capability.paths.storagepolicy"));
  }
}
