package io.sluice;

import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.util.Locale;

/**
 * The native library. Handles are numbers; a call on one that is closed fails. Texts and paths are
 * UTF-8. Records are as {@link Record} reads and writes them.
 *
 * <p>What must stay true: only this package calls it, and no buffer is used elsewhere during a call.
 */
final class Native {
  static final int READ = 1;
  static final int WRITE = 2;
  static final int APPEND = 4;
  static final int CREATE = 8;
  static final int CREATE_NEW = 16;
  static final int TRUNCATE = 32;
  static final int PARENTS = 64;

  /** Names a library outside of the jar. */
  private static final String FILE = "sluice.native";

  static {
    load();
  }

  private Native() {}

  private static void load() {
    String path = System.getProperty(FILE);
    if (path != null && !path.isEmpty()) {
      System.load(path);
      return;
    }
    String os = System.getProperty("os.name").toLowerCase(Locale.ROOT);
    String platform = os + "-" + System.getProperty("os.arch").replace("x86_64", "amd64");
    String name = platform + "/libsluicejni.so";
    try (InputStream library = Native.class.getResourceAsStream(name)) {
      if (library == null) {
        throw new UnsatisfiedLinkError("this jar of Sluice has no library for " + platform
            + "; build one on such a machine, or name the file in -D" + FILE);
      }
      // A file of its own for each process: nobody else can replace it.
      File file = File.createTempFile("sluice", ".so");
      try {
        try (OutputStream out = Files.newOutputStream(file.toPath())) {
          byte[] part = new byte[1 << 16];
          for (int n = library.read(part); n >= 0; n = library.read(part)) {
            out.write(part, 0, n);
          }
        }
        System.load(file.getAbsolutePath());
      } finally {
        // Once loaded, the file is not needed by its name.
        Files.deleteIfExists(file.toPath());
      }
    } catch (IOException e) {
      UnsatisfiedLinkError error = new UnsatisfiedLinkError(
          "the library of Sluice cannot be unpacked to " + System.getProperty("java.io.tmpdir"));
      error.initCause(e);
      throw error;
    }
  }

  static native long open(byte[] url, byte[] options, byte[] user) throws NativeException;

  static native void close(long session) throws NativeException;

  static native boolean isSuperuser(long session) throws NativeException;

  static native byte[] nameOf(long session, boolean group, int id) throws NativeException;

  static native int idOf(long session, boolean group, byte[] name) throws NativeException;

  static native byte[] volume(long session) throws NativeException;

  static native int openHandles(boolean files) throws NativeException;

  static native byte[] stat(long session, byte[] path, boolean follow) throws NativeException;

  static native byte[] pathOf(long session, long inode) throws NativeException;

  static native byte[] list(long session, byte[] path, byte[] cursor, int limit) throws NativeException;

  static native void mkdir(long session, byte[] path, int mode, int umask, boolean parents)
      throws NativeException;

  static native void rename(long session, byte[] from, byte[] to, boolean replace) throws NativeException;

  static native void remove(long session, byte[] path, boolean recursive) throws NativeException;

  static native void symlink(long session, byte[] target, byte[] path) throws NativeException;

  static native byte[] readlink(long session, byte[] path) throws NativeException;

  static native void truncate(long session, byte[] path, long length) throws NativeException;

  static native void concat(long session, byte[] target, byte[] sources) throws NativeException;

  static native void cloneTree(long session, byte[] from, byte[] to, boolean preserve)
      throws NativeException;

  static native byte[] summary(long session, byte[] path) throws NativeException;

  static native byte[] blockHosts(long session, byte[] path, long start, long end, long part)
      throws NativeException;

  static native byte[] quota(long session, byte[] path) throws NativeException;

  static native void setQuota(long session, byte[] path, long inodes, long space)
      throws NativeException;

  static native void setMode(long session, byte[] path, int mode) throws NativeException;

  static native void setOwner(long session, byte[] path, long uid, long gid) throws NativeException;

  static native void setTimes(long session, byte[] path, long mtime, long atime) throws NativeException;

  static native void access(long session, byte[] path, int access) throws NativeException;

  static native byte[] xattr(long session, byte[] path, byte[] name) throws NativeException;

  static native byte[] xattrs(long session, byte[] path) throws NativeException;

  static native void setXattr(
      long session, byte[] path, byte[] name, byte[] value, boolean create, boolean replace)
      throws NativeException;

  static native void removeXattr(long session, byte[] path, byte[] name) throws NativeException;

  static native byte[] acl(long session, byte[] path, boolean defaults) throws NativeException;

  static native void removeAcl(long session, byte[] path, boolean defaults) throws NativeException;

  static native void changeAcl(long session, byte[] path, boolean defaults, byte[] was, byte[] acl)
      throws NativeException;

  static native long openFile(long session, byte[] path, int flags, int mode, int umask)
      throws NativeException;

  static native int read(long file, long position, byte[] buffer, int offset, int length)
      throws NativeException;

  static native int readDirect(long file, long position, ByteBuffer buffer, int offset, int length)
      throws NativeException;

  static native void append(long file, ByteBuffer buffer, int length) throws NativeException;

  static native void flush(long file, boolean sync) throws NativeException;

  static native long length(long file) throws NativeException;

  static native void closeFile(long file) throws NativeException;
}
