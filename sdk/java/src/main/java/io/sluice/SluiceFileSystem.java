package io.sluice;

import java.io.FileNotFoundException;
import java.io.IOException;
import java.net.URI;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.EnumSet;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.NoSuchElementException;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executor;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.BlockLocation;
import org.apache.hadoop.fs.BulkDelete;
import org.apache.hadoop.fs.ContentSummary;
import org.apache.hadoop.fs.CreateFlag;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.FileChecksum;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.FsStatus;
import org.apache.hadoop.fs.GlobalStorageStatistics;
import org.apache.hadoop.fs.InvalidPathHandleException;
import org.apache.hadoop.fs.LocatedFileStatus;
import org.apache.hadoop.fs.MultipartUploaderBuilder;
import org.apache.hadoop.fs.Options;
import org.apache.hadoop.fs.ParentNotDirectoryException;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.PathFilter;
import org.apache.hadoop.fs.PathHandle;
import org.apache.hadoop.fs.PathIsNotDirectoryException;
import org.apache.hadoop.fs.PathIsNotEmptyDirectoryException;
import org.apache.hadoop.fs.QuotaUsage;
import org.apache.hadoop.fs.RemoteIterator;
import org.apache.hadoop.fs.StorageStatistics.CommonStatisticNames;
import org.apache.hadoop.fs.XAttrSetFlag;
import org.apache.hadoop.fs.impl.FileSystemMultipartUploaderBuilder;
import org.apache.hadoop.fs.impl.OpenFileParameters;
import org.apache.hadoop.fs.permission.AclEntry;
import org.apache.hadoop.fs.permission.AclEntryScope;
import org.apache.hadoop.fs.permission.AclStatus;
import org.apache.hadoop.fs.permission.FsAction;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.security.AccessControlException;
import org.apache.hadoop.util.Progressable;

/**
 * A Sluice volume as a Hadoop file system. Its URIs are {@code sluice://VOLUME/PATH}; the scheme
 * {@code jfs} works as well. docs/hadoop.md has the settings.
 *
 * <p>Users are asserted, not authenticated: whoever runs in this process is the user that Hadoop
 * says.
 *
 * <p>What must stay true: what HDFS answers is answered here, unless docs/hadoop.md says otherwise.
 * All file systems of a process with the same settings share one volume.
 */
public class SluiceFileSystem extends FileSystem {
  /** For {@link #setQuota}: leaves a limit as it is. */
  public static final long QUOTA_DONT_SET = Long.MAX_VALUE;

  /** For {@link #setQuota}: removes a limit. */
  public static final long QUOTA_RESET = -1;

  /** The settings that mean something in this class or in {@link Session}. */
  private static final List<String> SETTINGS =
      Arrays.asList(
          "name", "meta", "superuser", "supergroup", "users", "groups", "umask", "block.size",
          "min-buffer-size", "file.checksum", "list-page", "disable-trash-emptier",
          "users-reload");

  private static final String SNAPSHOTS = ".snapshot";
  private static final int PARALLEL_READS = 64;

  /** Runs what is to happen at once: vectored reads and bulk deletes. */
  private static final Executor PARALLEL = parallel();

  private URI uri;
  private Session session;
  private Path workingDirectory;
  private String homePrefix;
  private FsPermission umask;
  private long blockSize;
  private int bufferSize;
  private int page;
  private boolean checksums;
  private boolean inCacheGroup;
  private Operations operations;
  /** Null if this file system empties no trash. */
  private TrashEmptier emptier;

  private static Executor parallel() {
    AtomicInteger number = new AtomicInteger();
    ThreadPoolExecutor pool =
        new ThreadPoolExecutor(
            PARALLEL_READS,
            PARALLEL_READS,
            30,
            TimeUnit.SECONDS,
            new LinkedBlockingQueue<>(),
            run -> {
              Thread thread = new Thread(run, "sluice-" + number.incrementAndGet());
              thread.setDaemon(true);
              return thread;
            });
    pool.allowCoreThreadTimeOut(true);
    return pool;
  }

  @Override
  public void initialize(URI name, Configuration configuration) throws IOException {
    // A copy: the umask below is that of this file system alone.
    configuration = new Configuration(configuration);
    super.initialize(name, configuration);
    setConf(configuration);
    Settings settings = new Settings(configuration, name.getHost());
    if (settings.volume == null) {
      throw new IOException(name + " names no volume: write sluice://VOLUME/PATH");
    }
    settings.warn(SETTINGS);
    uri = URI.create(name.getScheme() + "://" + (name.getAuthority() == null ? "" : name.getAuthority()));
    homePrefix = configuration.get("dfs.user.home.dir.prefix", "/user");
    blockSize = settings.size("block.size", configuration.getLongBytes("dfs.blocksize", 128 << 20));
    bufferSize = (int) settings.size("min-buffer-size", 128 << 10);
    page = Integer.parseInt(settings.get("list-page", "1000"));
    checksums = settings.is("file.checksum", false);
    inCacheGroup = !settings.get("cache-group", "").isEmpty();
    String mask = settings.get("umask", "");
    if (!mask.isEmpty()) {
      configuration.set(FsPermission.UMASK_LABEL, mask);
    }
    umask = FsPermission.getUMask(configuration);
    operations =
        (Operations)
            GlobalStorageStatistics.INSTANCE.put(Operations.NAME, Operations::new);
    session = new Session(configuration, settings, name.getAuthority());
    workingDirectory = getHomeDirectory();
    if (session.isSuperuser() && !settings.is("disable-trash-emptier", false)) {
      emptier = TrashEmptier.start(this, settings.volume, configuration);
    }
  }

  @Override
  public void close() throws IOException {
    try {
      if (emptier != null) {
        emptier.stop();
      }
      super.close();
    } finally {
      if (session != null) {
        session.close();
      }
    }
  }

  @Override
  public String getScheme() {
    return uri == null ? "sluice" : uri.getScheme();
  }

  @Override
  public URI getUri() {
    return uri;
  }

  @Override
  public String getCanonicalServiceName() {
    // There are no tokens.
    return null;
  }

  @Override
  public Path getHomeDirectory() {
    return makeQualified(new Path(homePrefix + "/" + session.user));
  }

  @Override
  public Path getWorkingDirectory() {
    return workingDirectory;
  }

  @Override
  public void setWorkingDirectory(Path path) {
    workingDirectory = absolute(path);
    checkPath(workingDirectory);
  }

  @Override
  protected Path getInitialWorkingDirectory() {
    return workingDirectory;
  }

  @Override
  public long getDefaultBlockSize() {
    return blockSize;
  }

  @Override
  public short getDefaultReplication() {
    return 1;
  }

  // Paths and errors.

  private Path absolute(Path path) {
    return path.isAbsolute() ? path : new Path(workingDirectory, path);
  }

  private byte[] bytes(Path path) {
    checkPath(path);
    return Record.bytes(absolute(path).toUri().getPath());
  }

  private static boolean isRoot(byte[] path) {
    return path.length == 1;
  }

  private interface Call<T> {
    T call(long session) throws IOException;
  }

  /** Something that changes or reads a node itself. */
  private <T> T on(Path path, FsAction action, Call<T> call) throws IOException {
    try {
      return call.call(session.get());
    } catch (NativeException e) {
      throw failure(e, path, action, false);
    }
  }

  /** Something that makes, removes or moves a name. */
  private <T> T in(Path path, Call<T> call) throws IOException {
    try {
      return call.call(session.get());
    } catch (NativeException e) {
      throw failure(e, path, FsAction.WRITE, true);
    }
  }

  private IOException failure(NativeException e, Path path, FsAction action, boolean name) {
    if (e.errno() == NativeException.EACCES) {
      return Failures.because(e, denied(absolute(path), action, name));
    }
    if (e.errno() == NativeException.EPERM) {
      String text = "Permission denied. user=" + session.user + " is not the owner of inode="
          + absolute(path).toUri().getPath();
      return Failures.because(e, new AccessControlException(text));
    }
    return Failures.of(e, path);
  }

  /** Finds the directory that denied it, and says so as HDFS does. */
  private IOException denied(Path path, FsAction action, boolean name) {
    List<Path> way = new ArrayList<>();
    for (Path at = path; at != null; at = at.getParent()) {
      way.add(0, at);
    }
    Path culprit = way.get(0);
    FileStatus found = null;
    FsAction wanted = action;
    for (int i = 0; i < way.size() - (name && way.size() > 1 ? 1 : 0); i++) {
      try {
        found = getFileStatus(way.get(i));
        culprit = way.get(i);
      } catch (AccessControlException e) {
        wanted = FsAction.EXECUTE;
        break;
      } catch (IOException e) {
        break;
      }
    }
    String text = "Permission denied: user=" + session.user + ", access=" + wanted + ", inode=\""
        + culprit.toUri().getPath() + "\"";
    if (found != null) {
      text += ":" + found.getOwner() + ":" + found.getGroup() + ":" + (found.isDirectory() ? "d" : "-")
          + found.getPermission();
    }
    return new AccessControlException(text);
  }

  // Status.

  private FileStatus status(Attributes attributes, Path path) throws IOException {
    Path link = null;
    if (attributes.isLink()) {
      try {
        link = new Path(Record.text(Native.readlink(session.get(), bytes(path))));
      } catch (NativeException e) {
        if (e.errno() != NativeException.ENOENT && e.errno() != NativeException.EINVAL) {
          throw failure(e, path, FsAction.READ, false);
        }
        throw (IOException)
            new FileNotFoundException("The link was removed meanwhile: " + path).initCause(e);
      }
    }
    return new SluiceFileStatus(
        attributes,
        blockSize,
        session.name(false, attributes.uid),
        session.name(true, attributes.gid),
        link,
        path);
  }

  private Attributes attributes(Path path, boolean follow) throws IOException {
    byte[] name = bytes(path);
    try {
      return new Attributes(ByteBuffer.wrap(Native.stat(session.get(), name, follow)));
    } catch (NativeException e) {
      if (e.errno() == NativeException.EACCES) {
        throw Failures.because(e, searchDenied(absolute(path)));
      }
      if (e.errno() == NativeException.ENOTDIR) {
        throw Failures.because(e, new FileNotFoundException("File does not exist: " + path));
      }
      throw failure(e, path, FsAction.READ, false);
    }
  }

  /** A directory on the way to a path may not be searched: the last that can be seen. */
  private IOException searchDenied(Path path) {
    Path above = path.getParent();
    while (above != null) {
      try {
        FileStatus status =
            status(new Attributes(ByteBuffer.wrap(Native.stat(session.get(), bytes(above), true))), above);
        return new AccessControlException(
            "Permission denied: user=" + session.user + ", access=EXECUTE, inode=\""
                + above.toUri().getPath() + "\":" + status.getOwner() + ":" + status.getGroup() + ":"
                + "d" + status.getPermission());
      } catch (IOException e) {
        above = above.getParent();
      }
    }
    return new AccessControlException("Permission denied: user=" + session.user + ", path=" + path);
  }

  @Override
  public FileStatus getFileStatus(Path path) throws IOException {
    statistics.incrementReadOps(1);
    operations.count(CommonStatisticNames.OP_GET_FILE_STATUS);
    return status(attributes(path, true), makeQualified(path));
  }

  @Override
  public FileStatus getFileLinkStatus(Path path) throws IOException {
    statistics.incrementReadOps(1);
    return status(attributes(path, false), makeQualified(path));
  }

  @Override
  public FsStatus getStatus(Path path) throws IOException {
    statistics.incrementReadOps(1);
    operations.count(CommonStatisticNames.OP_GET_STATUS);
    ByteBuffer volume = session.volume();
    Record.take(volume);
    long total = volume.getLong();
    long used = volume.getLong();
    return new FsStatus(total, used, Math.max(0, total - used));
  }

  @Override
  public void access(Path path, FsAction mode) throws IOException {
    byte[] name = bytes(path);
    if (session.isSuperuser()) {
      attributes(path, true);
      return;
    }
    on(path, mode, handle -> {
      Native.access(handle, name, mode.ordinal());
      return null;
    });
  }

  // Reading.

  @Override
  public FSDataInputStream open(Path path, int buffer) throws IOException {
    statistics.incrementReadOps(1);
    operations.count(CommonStatisticNames.OP_OPEN);
    byte[] name = bytes(path);
    long file =
        on(path, FsAction.READ, handle -> Native.openFile(handle, name, Native.READ, 0, 0));
    try {
      return new FSDataInputStream(
          new SluiceInputStream(file, makeQualified(path), statistics, Math.max(buffer, bufferSize), PARALLEL));
    } catch (NativeException e) {
      close(file, e);
      throw failure(e, path, FsAction.READ, false);
    } catch (Throwable e) {
      close(file, e);
      throw e;
    }
  }

  @Override
  protected CompletableFuture<FSDataInputStream> openFileWithOptions(
      Path path, OpenFileParameters parameters) throws IOException {
    org.apache.hadoop.fs.impl.AbstractFSBuilderImpl.rejectUnknownMandatoryKeys(
        parameters.getMandatoryKeys(), openFileKeys(), "for " + path);
    FileStatus status = parameters.getStatus();
    if (status != null && !status.getPath().getName().equals(path.getName())) {
      throw new IllegalArgumentException("the status of " + status.getPath() + " was given for " + path);
    }
    // By this thread: in a pool, what follows the opening could keep its threads waiting for reads
    // that need one of them.
    CompletableFuture<FSDataInputStream> opened = new CompletableFuture<>();
    try {
      opened.complete(open(path, parameters.getBufferSize()));
    } catch (IOException | RuntimeException e) {
      opened.completeExceptionally(e);
    }
    return opened;
  }

  private static java.util.Set<String> openFileKeys() {
    return new java.util.HashSet<>(
        Arrays.asList(
            Options.OpenFileOptions.FS_OPTION_OPENFILE_BUFFER_SIZE,
            Options.OpenFileOptions.FS_OPTION_OPENFILE_READ_POLICY,
            Options.OpenFileOptions.FS_OPTION_OPENFILE_LENGTH,
            Options.OpenFileOptions.FS_OPTION_OPENFILE_SPLIT_START,
            Options.OpenFileOptions.FS_OPTION_OPENFILE_SPLIT_END));
  }

  @Override
  protected PathHandle createPathHandle(FileStatus status, Options.HandleOpt... options) {
    boolean mayMove =
        Options.HandleOpt.getOpt(Options.HandleOpt.Location.class, options)
            .orElse(Options.HandleOpt.moved(false))
            .allowChange();
    boolean mayChange =
        Options.HandleOpt.getOpt(Options.HandleOpt.Data.class, options)
            .orElse(Options.HandleOpt.changed(false))
            .allowChange();
    if (!(status instanceof SluiceFileStatus) || status.isDirectory() || status.isSymlink()) {
      throw new IllegalArgumentException("not the status of a file of this file system: " + status);
    }
    return new SluicePathHandle(
        ((SluiceFileStatus) status).inode(),
        mayMove ? "" : status.getPath().toUri().getPath(),
        mayChange ? -1 : status.getModificationTime(),
        mayChange ? -1 : status.getLen());
  }

  @Override
  public FSDataInputStream open(PathHandle handle, int buffer) throws IOException {
    SluicePathHandle wanted = SluicePathHandle.of(handle);
    Path path;
    Attributes found;
    try {
      String name =
          wanted.path.isEmpty() ? Record.text(Native.pathOf(session.get(), wanted.inode)) : wanted.path;
      path = new Path(name);
      found = new Attributes(ByteBuffer.wrap(Native.stat(session.get(), bytes(path), true)));
    } catch (NativeException e) {
      if (e.errno() == NativeException.ENOENT || e.errno() == NativeException.ENOTDIR) {
        throw new InvalidPathHandleException("the file of the handle is gone", e);
      }
      throw failure(e, new Path("/" + wanted.path), FsAction.READ, false);
    }
    boolean changed =
        wanted.length >= 0 && (found.mtime != wanted.mtime || found.length != wanted.length);
    if (found.inode != wanted.inode || changed) {
      throw new InvalidPathHandleException("the file of the handle was replaced or changed: " + path);
    }
    return open(path, buffer);
  }

  // Writing.

  private FSDataOutputStream openToWrite(
      Path path, int flags, int mode, int umask, boolean positioned) throws IOException {
    statistics.incrementWriteOps(1);
    byte[] name = bytes(path);
    long file;
    try {
      file = Native.openFile(session.get(), name, flags | Native.APPEND, mode, umask);
    } catch (NativeException e) {
      switch (e.errno()) {
        case NativeException.EISDIR:
          throw Failures.because(e, new FileAlreadyExistsException(path + " is a directory"));
        case NativeException.EEXIST:
          throw Failures.because(e, new FileAlreadyExistsException(path + " already exists"));
        case NativeException.ENOENT:
          throw Failures.because(e, new FileNotFoundException(
              positioned ? "File does not exist: " + path : "Parent directory does not exist: " + path));
        case NativeException.EACCES:
          boolean there = false;
          try {
            there = attributes(path, true) != null;
          } catch (IOException absent) {
            // The directory above denied it.
          }
          throw failure(e, path, FsAction.WRITE, !there);
        default:
          throw failure(e, path, FsAction.WRITE, true);
      }
    }
    Path full = makeQualified(path);
    try {
      // How far an append begins from the start: what getPos of the stream counts from.
      long begin = positioned ? Native.length(file) : 0;
      // Without statistics: the stream below counts bytes itself.
      return new FSDataOutputStream(new SluiceOutputStream(file, full, statistics), null, begin);
    } catch (NativeException e) {
      close(file, e);
      throw failure(e, path, FsAction.WRITE, false);
    } catch (Throwable e) {
      close(file, e);
      throw e;
    }
  }

  /** Closes a file that nobody got. */
  private static void close(long file, Throwable reason) {
    try {
      Native.closeFile(file);
    } catch (NativeException e) {
      reason.addSuppressed(e);
    }
  }

  private static int createFlags(boolean overwrite, boolean parents) {
    return (overwrite ? Native.CREATE | Native.TRUNCATE : Native.CREATE_NEW)
        | (parents ? Native.PARENTS : 0);
  }

  @Override
  public FSDataOutputStream create(
      Path path,
      FsPermission permission,
      boolean overwrite,
      int buffer,
      short replication,
      long block,
      Progressable progress)
      throws IOException {
    operations.count(CommonStatisticNames.OP_CREATE);
    FsPermission mode = permission == null ? FsPermission.getFileDefault() : permission;
    return openToWrite(path, createFlags(overwrite, true), mode.toShort(), umask.toShort(), false);
  }

  @Override
  public FSDataOutputStream createNonRecursive(
      Path path,
      FsPermission permission,
      EnumSet<CreateFlag> flags,
      int buffer,
      short replication,
      long block,
      Progressable progress)
      throws IOException {
    operations.count(CommonStatisticNames.OP_CREATE_NON_RECURSIVE);
    CreateFlag.validate(flags);
    if (flags.contains(CreateFlag.APPEND)) {
      return append(path, buffer, progress);
    }
    FsPermission mode = permission == null ? FsPermission.getFileDefault() : permission;
    boolean overwrite = flags.contains(CreateFlag.OVERWRITE);
    return openToWrite(path, createFlags(overwrite, false), mode.toShort(), umask.toShort(), false);
  }

  /** The permission is final: its user applied the umask. */
  @Override
  @Deprecated
  protected FSDataOutputStream primitiveCreate(
      Path path,
      FsPermission permission,
      EnumSet<CreateFlag> flags,
      int buffer,
      short replication,
      long block,
      Progressable progress,
      Options.ChecksumOpt checksum)
      throws IOException {
    operations.count(CommonStatisticNames.OP_CREATE);
    boolean matters =
        flags != null && (flags.contains(CreateFlag.APPEND) || !flags.contains(CreateFlag.CREATE));
    boolean exists = matters && exists(path);
    CreateFlag.validate(path, exists, flags);
    if (exists && flags.contains(CreateFlag.APPEND)) {
      return append(path, buffer, progress);
    }
    int open = createFlags(flags.contains(CreateFlag.OVERWRITE), false);
    try {
      return openToWrite(path, open, permission.toShort(), 0, false);
    } catch (FileNotFoundException e) {
      // The umask of this file system is for directories that its user did not ask for.
      mkdirs(absolute(path).getParent(), FsPermission.getDirDefault());
      return openToWrite(path, open, permission.toShort(), 0, false);
    }
  }

  @Override
  public FSDataOutputStream append(Path path, int buffer, Progressable progress) throws IOException {
    operations.count(CommonStatisticNames.OP_APPEND);
    return openToWrite(path, 0, 0, 0, true);
  }

  @Override
  public boolean truncate(Path path, long length) throws IOException {
    statistics.incrementWriteOps(1);
    operations.count(CommonStatisticNames.OP_TRUNCATE);
    Attributes attributes = attributes(path, true);
    if (attributes.isDirectory()) {
      throw new FileNotFoundException("Path is not a file: " + path);
    }
    if (length < 0 || length > attributes.length) {
      throw new IllegalArgumentException(
          "Cannot truncate " + path + " from " + attributes.length + " to " + length + " bytes");
    }
    byte[] name = bytes(path);
    return on(path, FsAction.WRITE, handle -> {
      Native.truncate(handle, name, length);
      return true;
    });
  }

  @Override
  public void concat(Path target, Path[] sources) throws IOException {
    statistics.incrementWriteOps(1);
    if (sources.length == 0) {
      throw new IllegalArgumentException("no files to append to " + target);
    }
    Record names = new Record();
    for (Path source : sources) {
      names.add(bytes(source));
    }
    byte[] name = bytes(target);
    on(target, FsAction.WRITE, handle -> {
      Native.concat(handle, name, names.toBytes());
      return null;
    });
  }

  @Override
  @SuppressWarnings("rawtypes")
  public MultipartUploaderBuilder createMultipartUploader(Path base) throws IOException {
    return new FileSystemMultipartUploaderBuilder(this, base);
  }

  // Names.

  @Override
  public boolean mkdirs(Path path, FsPermission permission) throws IOException {
    FsPermission mode = permission == null ? FsPermission.getDirDefault() : permission;
    mkdir(path, mode.toShort(), umask.toShort(), true);
    return true;
  }

  private void mkdir(Path path, int mode, int umask, boolean parents) throws IOException {
    statistics.incrementWriteOps(1);
    operations.count(CommonStatisticNames.OP_MKDIRS);
    byte[] name = bytes(path);
    in(path, handle -> {
      if (!isRoot(name) || !parents) {
        Native.mkdir(handle, name, mode & 01777, umask, parents);
      }
      return null;
    });
  }

  @Override
  @Deprecated
  protected boolean primitiveMkdir(Path path, FsPermission permission) throws IOException {
    mkdir(path, permission.toShort(), 0, true);
    return true;
  }

  @Override
  @Deprecated
  protected void primitiveMkdir(Path path, FsPermission permission, boolean parents) throws IOException {
    mkdir(path, permission.toShort(), 0, parents);
  }

  @Override
  public boolean rename(Path src, Path dst) throws IOException {
    statistics.incrementWriteOps(1);
    operations.count(CommonStatisticNames.OP_RENAME);
    byte[] from = bytes(src);
    byte[] to = bytes(dst);
    if (isRoot(from)) {
      return false;
    }
    try {
      if (!isRoot(to)) {
        Native.rename(session.get(), from, to, false);
        return true;
      }
    } catch (NativeException e) {
      if (e.errno() != NativeException.EEXIST) {
        return notRenamed(e, src);
      }
    }
    // Something is there: a directory takes it in.
    Attributes there;
    try {
      there = attributes(dst, true);
    } catch (FileNotFoundException e) {
      // It was removed meanwhile.
      return move(src, from, to);
    }
    if (!there.isDirectory()) {
      return Arrays.equals(from, to);
    }
    return move(src, from, bytes(new Path(absolute(dst), absolute(src).getName())));
  }

  private boolean move(Path src, byte[] from, byte[] to) throws IOException {
    try {
      Native.rename(session.get(), from, to, false);
      return true;
    } catch (NativeException e) {
      return notRenamed(e, src);
    }
  }

  private boolean notRenamed(NativeException e, Path src) throws IOException {
    switch (e.errno()) {
      case NativeException.ENOENT:
      case NativeException.EEXIST:
      case NativeException.EINVAL:
      case NativeException.ENOTDIR:
        return false;
      default:
        throw failure(e, src, FsAction.WRITE, true);
    }
  }

  @Override
  @Deprecated
  protected void rename(Path src, Path dst, Options.Rename... options) throws IOException {
    List<Options.Rename> wanted = Arrays.asList(options);
    if (wanted.contains(Options.Rename.TO_TRASH)) {
      super.rename(src, dst, options);
      return;
    }
    move(src, dst, wanted.contains(Options.Rename.OVERWRITE));
  }

  /** Moves a name to exactly this one; what is there is replaced if that is wanted and possible. */
  void move(Path src, Path dst, boolean overwrite) throws IOException {
    statistics.incrementWriteOps(1);
    operations.count(CommonStatisticNames.OP_RENAME);
    byte[] from = bytes(src);
    byte[] to = bytes(dst);
    if (Arrays.equals(from, to)) {
      attributes(src, false);
      throw new FileAlreadyExistsException("The source " + src + " and destination " + dst + " are the same");
    }
    if (isRoot(from) || isRoot(to)) {
      throw new IOException("rename source and destination cannot be the root");
    }
    try {
      Native.rename(session.get(), from, to, overwrite);
    } catch (NativeException e) {
      switch (e.errno()) {
        case NativeException.ENOENT:
          attributes(src, false);
          throw Failures.because(e, new FileNotFoundException("rename destination parent of " + dst + " not found"));
        case NativeException.ENOTDIR:
          FileStatus above = exists(dst.getParent()) ? getFileStatus(dst.getParent()) : null;
          if (above == null || !above.isDirectory()) {
            throw Failures.because(e,
                new ParentNotDirectoryException("rename destination parent " + dst.getParent() + " is a file"));
          }
          throw Failures.because(e, new IOException("Source " + src + " is a directory and destination " + dst + " is a file"));
        case NativeException.EISDIR:
          throw Failures.because(e, new IOException("Source " + src + " is a file and destination " + dst + " is a directory"));
        case NativeException.EINVAL:
          throw Failures.because(e, new IOException("Rename destination " + dst + " is a directory or file under source " + src));
        case NativeException.EEXIST:
          throw Failures.because(e, new FileAlreadyExistsException("rename destination " + dst + " already exists"));
        case NativeException.ENOTEMPTY:
          throw Failures.because(e, new IOException("rename cannot overwrite non empty destination directory " + dst));
        default:
          throw failure(e, src, FsAction.WRITE, true);
      }
    }
  }

  @Override
  public boolean delete(Path path, boolean recursive) throws IOException {
    statistics.incrementWriteOps(1);
    operations.count(CommonStatisticNames.OP_DELETE);
    byte[] name = bytes(path);
    if (isRoot(name)) {
      if (!recursive && listStatusIterator(path).hasNext()) {
        throw new PathIsNotEmptyDirectoryException(path.toString());
      }
      return false;
    }
    try {
      Native.remove(session.get(), name, recursive);
      return true;
    } catch (NativeException e) {
      if (e.errno() == NativeException.ENOENT || e.errno() == NativeException.ENOTDIR) {
        return false;
      }
      throw failure(e, path, FsAction.WRITE, true);
    }
  }

  @Override
  public BulkDelete createBulkDelete(Path path) throws IOException {
    Path base = makeQualified(path);
    return SluiceBulkDelete.of(base, one -> delete(one, false), PARALLEL);
  }

  // Lists.

  @Override
  public FileStatus[] listStatus(Path path) throws IOException {
    List<FileStatus> all = new ArrayList<>();
    for (RemoteIterator<FileStatus> items = listStatusIterator(path); items.hasNext(); ) {
      all.add(items.next());
    }
    FileStatus[] sorted = all.toArray(new FileStatus[0]);
    Arrays.sort(sorted, Comparator.comparing(FileStatus::getPath));
    return sorted;
  }

  @Override
  public RemoteIterator<FileStatus> listStatusIterator(Path path) throws IOException {
    operations.count(CommonStatisticNames.OP_LIST_STATUS);
    return new Listing(makeQualified(path));
  }

  @Override
  protected RemoteIterator<LocatedFileStatus> listLocatedStatus(Path path, PathFilter filter)
      throws IOException {
    RemoteIterator<FileStatus> items = listStatusIterator(path);
    return new RemoteIterator<LocatedFileStatus>() {
      private FileStatus next;

      @Override
      public boolean hasNext() throws IOException {
        while (next == null && items.hasNext()) {
          FileStatus item = items.next();
          next = filter.accept(item.getPath()) ? item : null;
        }
        return next != null;
      }

      @Override
      public LocatedFileStatus next() throws IOException {
        if (!hasNext()) {
          throw new NoSuchElementException("no more in " + path);
        }
        FileStatus item = next;
        next = null;
        return new SluiceLocatedFileStatus(
            item, item.isFile() ? getFileBlockLocations(item, 0, item.getLen()) : null);
      }
    };
  }

  /**
   * Reads a directory page by page. Its memory does not grow with the directory, unless the engine
   * does not sort names: a later page may repeat one then, so all are kept.
   */
  private final class Listing implements RemoteIterator<FileStatus> {
    private final Path path;
    private final byte[] name;
    private byte[] cursor = {};
    private boolean more = true;
    private final List<FileStatus> items = new ArrayList<>();
    private final Set<ByteBuffer> seen = new HashSet<>();
    private int at;

    Listing(Path path) throws IOException {
      this.path = path;
      name = bytes(path);
      read();
    }

    private void read() throws IOException {
      statistics.incrementReadOps(1);
      items.clear();
      at = 0;
      ByteBuffer record;
      try {
        record = ByteBuffer.wrap(Native.list(session.get(), name, cursor, page));
      } catch (NativeException e) {
        if (e.errno() != NativeException.ENOTDIR) {
          throw failure(e, path, FsAction.READ_EXECUTE, false);
        }
        items.add(getFileStatus(path));
        more = false;
        return;
      }
      cursor = Record.take(record);
      more = cursor.length > 0;
      boolean sorted = record.get() != 0;
      while (record.hasRemaining()) {
        byte[] child = Record.take(record);
        Attributes known = record.get() != 0 ? new Attributes(record) : null;
        if (!sorted && !seen.add(ByteBuffer.wrap(child))) {
          continue;
        }
        Path full = child(Record.text(child));
        try {
          items.add(known != null ? status(known, full) : getFileLinkStatus(full));
        } catch (FileNotFoundException e) {
          // It was removed meanwhile.
        }
      }
    }

    /** Names may have what means something else in a path. */
    private Path child(String child) {
      String parent = path.toUri().getPath();
      return new Path(
          uri.getScheme(), uri.getAuthority(), parent.endsWith("/") ? parent + child : parent + "/" + child);
    }

    @Override
    public boolean hasNext() throws IOException {
      while (at == items.size() && more) {
        read();
      }
      return at < items.size();
    }

    @Override
    public FileStatus next() throws IOException {
      if (!hasNext()) {
        throw new NoSuchElementException("no more in " + path);
      }
      return items.get(at++);
    }
  }

  @Override
  public ContentSummary getContentSummary(Path path) throws IOException {
    operations.count(CommonStatisticNames.OP_GET_CONTENT_SUMMARY);
    ByteBuffer sum = summary(path);
    long length = sum.getLong();
    sum.getLong();
    long files = sum.getLong();
    long directories = sum.getLong();
    ContentSummary.Builder summary =
        new ContentSummary.Builder().length(length).fileCount(files).directoryCount(directories);
    return new DirectoryQuota(sum).addTo(summary, length).build();
  }

  /** One request if the directory has a quota; else what is below it is counted. */
  @Override
  public QuotaUsage getQuotaUsage(Path path) throws IOException {
    statistics.incrementReadOps(1);
    byte[] name = bytes(path);
    byte[] record = on(path, FsAction.READ_EXECUTE, handle -> Native.quota(handle, name));
    DirectoryQuota quota = new DirectoryQuota(ByteBuffer.wrap(record));
    return quota.exists() ? quota.usage() : getContentSummary(path);
  }

  /**
   * Sets the quota of a directory, as DistributedFileSystem does. If other clients have the volume
   * open, the first quota of a directory takes two of their heartbeats.
   *
   * @param namespaceQuota how many files and directories there may be, the directory itself
   *     included; {@link #QUOTA_DONT_SET} or {@link #QUOTA_RESET}
   * @param storagespaceQuota how many bytes there may be, in units of 4 KiB for each file and
   *     directory; or one of the two
   * @throws IllegalArgumentException for any other number below 1, and for a namespace quota of 1
   * @throws AccessControlException unless the user is a superuser
   */
  public void setQuota(Path path, long namespaceQuota, long storagespaceQuota) throws IOException {
    statistics.incrementWriteOps(1);
    byte[] name = bytes(path);
    long inodes = DirectoryQuota.inodes(namespaceQuota);
    long space = DirectoryQuota.space(storagespaceQuota);
    if (!session.isSuperuser()) {
      throw new AccessControlException(
          "Access denied for user " + session.user + ". Superuser privilege is required");
    }
    if (!attributes(path, true).isDirectory()) {
      throw new PathIsNotDirectoryException(path.toString());
    }
    if (inodes >= 0 || space >= 0) {
      on(path, FsAction.WRITE, handle -> {
        Native.setQuota(handle, name, inodes, space);
        return null;
      });
    }
  }

  private ByteBuffer summary(Path path) throws IOException {
    statistics.incrementReadOps(1);
    byte[] name = bytes(path);
    try {
      return on(
          path, FsAction.READ_EXECUTE, handle -> ByteBuffer.wrap(Native.summary(handle, name)));
    } catch (ParentNotDirectoryException e) {
      throw (IOException) new FileNotFoundException("File does not exist: " + path).initCause(e);
    }
  }

  @Override
  public BlockLocation[] getFileBlockLocations(FileStatus file, long start, long length)
      throws IOException {
    if (file == null) {
      return null;
    }
    if (start < 0 || length < 0) {
      throw new IllegalArgumentException("Invalid start or len parameter");
    }
    if (file.getLen() <= start) {
      return new BlockLocation[0];
    }
    long end = start + Math.min(length, file.getLen() - start);
    long size = file.getBlockSize() > 0 ? file.getBlockSize() : blockSize;
    List<BlockLocation> blocks = new ArrayList<>();
    ByteBuffer owners = owners(file.getPath(), start, end, size);
    for (long begin = start - start % size; begin < end; begin += size) {
      String machines = owners.hasRemaining() ? Record.text(Record.take(owners)) : "";
      // Without an owner, all are equally near to the object store.
      String[] hosts = machines.isEmpty() ? new String[] {"localhost"} : machines.split(",");
      String[] names = new String[hosts.length];
      for (int at = 0; at < hosts.length; at++) {
        names[at] = hosts[at] + ":50010";
      }
      blocks.add(new BlockLocation(names, hosts, begin, Math.min(size, file.getLen() - begin)));
    }
    return blocks.toArray(new BlockLocation[0]);
  }

  /** The machines that cache each block of a file, if there is a cache group. */
  private ByteBuffer owners(Path path, long start, long end, long size) throws IOException {
    byte[] machines = new byte[0];
    if (inCacheGroup) {
      try {
        machines = Native.blockHosts(session.get(), bytes(path), start, end, size);
      } catch (NativeException e) {
        // A listing also names files that the user may not read, or that are gone by now.
        if (e.errno() != NativeException.EACCES && e.errno() != NativeException.ENOENT) {
          throw failure(e, path, FsAction.READ, false);
        }
      }
    }
    return ByteBuffer.wrap(machines);
  }

  @Override
  public FileChecksum getFileChecksum(Path path, long length) throws IOException {
    operations.count(CommonStatisticNames.OP_GET_FILE_CHECKSUM);
    if (!checksums) {
      return null;
    }
    FileStatus status = getFileStatus(path);
    if (status.isDirectory()) {
      throw new FileNotFoundException("Path is not a file: " + path);
    }
    try (FSDataInputStream in = open(path, bufferSize)) {
      return new Checksums(getConf(), status.getBlockSize()).of(in, Math.min(length, status.getLen()));
    }
  }

  // Attributes.

  @Override
  public void setPermission(Path path, FsPermission permission) throws IOException {
    statistics.incrementWriteOps(1);
    operations.count(CommonStatisticNames.OP_SET_PERMISSION);
    byte[] name = bytes(path);
    on(path, FsAction.WRITE, handle -> {
      Native.setMode(handle, name, permission.toShort() & 01777);
      return null;
    });
  }

  @Override
  public void setOwner(Path path, String user, String group) throws IOException {
    statistics.incrementWriteOps(1);
    operations.count(CommonStatisticNames.OP_SET_OWNER);
    byte[] name = bytes(path);
    long uid = user == null || user.isEmpty() ? -1 : session.id(false, user) & 0xffffffffL;
    long gid = group == null || group.isEmpty() ? -1 : session.id(true, group) & 0xffffffffL;
    on(path, FsAction.WRITE, handle -> {
      Native.setOwner(handle, name, uid, gid);
      return null;
    });
  }

  @Override
  public void setTimes(Path path, long mtime, long atime) throws IOException {
    statistics.incrementWriteOps(1);
    operations.count(CommonStatisticNames.OP_SET_TIMES);
    byte[] name = bytes(path);
    on(path, FsAction.WRITE, handle -> {
      Native.setTimes(handle, name, mtime, atime);
      return null;
    });
  }

  @Override
  public boolean setReplication(Path path, short replication) throws IOException {
    // The object store keeps copies as it does.
    return exists(path);
  }

  // Symbolic links.

  @Override
  public boolean supportsSymlinks() {
    return true;
  }

  @Override
  public void createSymlink(Path target, Path link, boolean parents) throws IOException {
    statistics.incrementWriteOps(1);
    byte[] name = bytes(link);
    URI to = target.toUri();
    boolean own = to.getScheme() == null || (to.getScheme().equals(uri.getScheme())
        && (to.getAuthority() == null || to.getAuthority().equals(uri.getAuthority())));
    if (!own) {
      throw new IOException("a link out of the volume leads nowhere: " + target);
    }
    if (parents && absolute(link).getParent() != null) {
      mkdirs(absolute(link).getParent());
    }
    in(link, handle -> {
      Native.symlink(handle, Record.bytes(to.getPath()), name);
      return null;
    });
  }

  @Override
  public Path getLinkTarget(Path link) throws IOException {
    byte[] name = bytes(link);
    try {
      return new Path(Record.text(Native.readlink(session.get(), name)));
    } catch (NativeException e) {
      if (e.errno() == NativeException.EINVAL) {
        throw new IOException("Path " + link + " is not a symbolic link", e);
      }
      throw failure(e, link, FsAction.READ, false);
    }
  }

  @Override
  protected Path resolveLink(Path link) throws IOException {
    return getLinkTarget(link);
  }

  // Extended attributes.

  private static void validate(String name) throws IOException {
    String lower = name == null ? "" : name.toLowerCase(Locale.ROOT);
    int dot = lower.indexOf('.');
    List<String> kinds = Arrays.asList("user", "trusted", "security", "system");
    if (dot < 1 || dot == lower.length() - 1 || !kinds.contains(lower.substring(0, dot))) {
      throw new IllegalArgumentException(
          "An XAttr name must be prefixed with user/trusted/security/system, followed by a '.': " + name);
    }
  }

  @Override
  public void setXAttr(Path path, String name, byte[] value, EnumSet<XAttrSetFlag> flags)
      throws IOException {
    statistics.incrementWriteOps(1);
    validate(name);
    byte[] at = bytes(path);
    byte[] content = value == null ? new byte[0] : value;
    boolean create = flags.contains(XAttrSetFlag.CREATE);
    boolean replace = flags.contains(XAttrSetFlag.REPLACE);
    try {
      Native.setXattr(session.get(), at, Record.bytes(name), content, create, replace);
    } catch (NativeException e) {
      if (e.errno() == NativeException.EEXIST) {
        throw new IOException("XAttr: " + name + " already exists. The REPLACE flag must be specified.", e);
      }
      if (e.errno() == NativeException.ENODATA) {
        throw new IOException("XAttr: " + name + " does not exist. The CREATE flag must be specified.", e);
      }
      throw failure(e, path, FsAction.WRITE, false);
    }
  }

  @Override
  public byte[] getXAttr(Path path, String name) throws IOException {
    statistics.incrementReadOps(1);
    validate(name);
    byte[] at = bytes(path);
    try {
      return Native.xattr(session.get(), at, Record.bytes(name));
    } catch (NativeException e) {
      if (e.errno() == NativeException.ENODATA) {
        throw new IOException("At least one of the attributes provided was not found.", e);
      }
      throw failure(e, path, FsAction.READ, false);
    }
  }

  @Override
  public List<String> listXAttrs(Path path) throws IOException {
    statistics.incrementReadOps(1);
    byte[] at = bytes(path);
    ByteBuffer record =
        on(path, FsAction.READ, handle -> ByteBuffer.wrap(Native.xattrs(handle, at)));
    List<String> names = new ArrayList<>();
    while (record.hasRemaining()) {
      String name = Record.text(Record.take(record));
      // ACLs have methods of their own.
      if (!name.startsWith("system.posix_acl_")) {
        names.add(name);
      }
    }
    return names;
  }

  @Override
  public Map<String, byte[]> getXAttrs(Path path) throws IOException {
    return getXAttrs(path, listXAttrs(path));
  }

  @Override
  public Map<String, byte[]> getXAttrs(Path path, List<String> names) throws IOException {
    Map<String, byte[]> values = new HashMap<>();
    for (String name : names) {
      values.put(name, getXAttr(path, name));
    }
    return values;
  }

  @Override
  public void removeXAttr(Path path, String name) throws IOException {
    statistics.incrementWriteOps(1);
    validate(name);
    byte[] at = bytes(path);
    try {
      Native.removeXattr(session.get(), at, Record.bytes(name));
    } catch (NativeException e) {
      if (e.errno() == NativeException.ENODATA) {
        throw new IOException("No matching attributes found for remove operation: " + name, e);
      }
      throw failure(e, path, FsAction.WRITE, false);
    }
  }

  // ACLs.

  private byte[] aclRecord(Path path, AclEntryScope scope) throws IOException {
    try {
      return Native.acl(session.get(), bytes(path), scope == AclEntryScope.DEFAULT);
    } catch (NativeException e) {
      throw aclFailure(e, path);
    }
  }

  private IOException aclFailure(NativeException e, Path path) {
    if (e.errno() == NativeException.ENOTSUP) {
      return new IOException(
          "The volume has no ACLs; `sluice config META-URL --enable-acl` turns them on", e);
    }
    return failure(e, path, FsAction.WRITE, false);
  }

  private interface Change {
    boolean apply(Acls acl) throws IOException;
  }

  private void change(Path path, Change change) throws IOException {
    statistics.incrementWriteOps(1);
    for (AclEntryScope scope : AclEntryScope.values()) {
      while (!changeOnce(path, scope, change)) {
        // Another client has changed it: its change counts, too.
      }
    }
  }

  /** False if the ACL changed after it was read. */
  private boolean changeOnce(Path path, AclEntryScope scope, Change change) throws IOException {
    Attributes attributes = attributes(path, true);
    byte[] was = aclRecord(path, scope);
    Acls acl = Acls.read(scope, attributes.mode, was, session);
    boolean defaults = scope == AclEntryScope.DEFAULT;
    if (was.length == 0 && !defaults) {
      was = acl.toBytes(session);
    }
    if (!change.apply(acl)) {
      return true;
    }
    acl.complete();
    if (defaults && !attributes.isDirectory()) {
      throw new IOException("Invalid ACL: only directories may have a default ACL. Path: " + path);
    }
    try {
      // One that says no more than a mode becomes the mode, in the same operation.
      Native.changeAcl(session.get(), bytes(path), defaults, was, acl.toBytes(session));
      return true;
    } catch (NativeException e) {
      if (e.errno() == NativeException.EAGAIN) {
        return false;
      }
      throw aclFailure(e, path);
    }
  }

  @Override
  public void modifyAclEntries(Path path, List<AclEntry> entries) throws IOException {
    operations.count(CommonStatisticNames.OP_MODIFY_ACL_ENTRIES);
    change(path, acl -> acl.put(entries));
  }

  @Override
  public void removeAclEntries(Path path, List<AclEntry> entries) throws IOException {
    operations.count(CommonStatisticNames.OP_REMOVE_ACL_ENTRIES);
    change(path, acl -> acl.remove(entries));
  }

  @Override
  public void setAcl(Path path, List<AclEntry> entries) throws IOException {
    operations.count(CommonStatisticNames.OP_SET_ACL);
    change(path, acl -> {
      acl.clear();
      return acl.put(entries);
    });
  }

  @Override
  public void removeDefaultAcl(Path path) throws IOException {
    operations.count(CommonStatisticNames.OP_REMOVE_DEFAULT_ACL);
    removeDefaults(path);
  }

  private void removeDefaults(Path path) throws IOException {
    if (!attributes(path, true).isDirectory()) {
      return;
    }
    try {
      Native.removeAcl(session.get(), bytes(path), true);
    } catch (NativeException e) {
      if (e.errno() != NativeException.ENODATA) {
        throw aclFailure(e, path);
      }
    }
  }

  @Override
  public void removeAcl(Path path) throws IOException {
    operations.count(CommonStatisticNames.OP_REMOVE_ACL);
    removeDefaults(path);
    Change clear = acl -> {
      acl.clear();
      return true;
    };
    while (!changeOnce(path, AclEntryScope.ACCESS, clear)) {
      // As above.
    }
  }

  @Override
  public AclStatus getAclStatus(Path path) throws IOException {
    statistics.incrementReadOps(1);
    FileStatus status = getFileStatus(path);
    Attributes attributes = attributes(path, true);
    List<AclEntry> entries = new ArrayList<>();
    for (AclEntryScope scope : AclEntryScope.values()) {
      byte[] record = aclRecord(path, scope);
      if (record.length > 0 || scope == AclEntryScope.ACCESS) {
        entries.addAll(Acls.read(scope, attributes.mode, record, session).entries());
      }
    }
    return new AclStatus.Builder()
        .owner(status.getOwner())
        .group(status.getGroup())
        .stickyBit(status.getPermission().getStickyBit())
        .setPermission(status.getPermission())
        .addEntries(entries)
        .build();
  }

  // Snapshots: clones below DIRECTORY/.snapshot.

  private Path snapshot(Path path, String name) {
    return new Path(new Path(makeQualified(path), SNAPSHOTS), name);
  }

  /**
   * Clones what is in a directory, without a copy of data. It appears as a whole; what is written
   * meanwhile may be in it or not.
   */
  @Override
  public Path createSnapshot(Path path, String name) throws IOException {
    String chosen =
        name == null ? "s" + new java.text.SimpleDateFormat("yyyyMMdd-HHmmss.SSS").format(new java.util.Date()) : name;
    Path snapshot = snapshot(path, chosen);
    if (!getFileStatus(path).isDirectory()) {
      throw new ParentNotDirectoryException(path + " is not a directory");
    }
    if (exists(snapshot)) {
      throw new FileAlreadyExistsException("there is a snapshot " + snapshot);
    }
    Path making = snapshot(path, ".making-" + chosen);
    mkdirs(making, new FsPermission((short) 0755));
    boolean done = false;
    try {
      for (RemoteIterator<FileStatus> items = listStatusIterator(path); items.hasNext(); ) {
        Path child = items.next().getPath();
        if (!child.getName().equals(SNAPSHOTS)) {
          byte[] from = bytes(child);
          byte[] to = bytes(new Path(making, child.getName()));
          in(child, handle -> {
            Native.cloneTree(handle, from, to, true);
            return null;
          });
        }
      }
      move(making, snapshot, false);
      done = true;
    } finally {
      if (!done) {
        delete(making, true);
      }
    }
    return snapshot;
  }

  @Override
  public void renameSnapshot(Path path, String from, String to) throws IOException {
    move(snapshot(path, from), snapshot(path, to), false);
  }

  @Override
  public void deleteSnapshot(Path path, String name) throws IOException {
    if (!delete(snapshot(path, name), true)) {
      throw new FileNotFoundException("there is no snapshot " + snapshot(path, name));
    }
  }

  // What there is.

  @Override
  public boolean hasPathCapability(Path path, String capability) throws IOException {
    bytes(path);
    switch (capability.toLowerCase(Locale.ROOT)) {
      case "fs.capability.paths.acls":
      case "fs.capability.paths.append":
      case "fs.capability.paths.concat":
      case "fs.capability.paths.pathhandles":
      case "fs.capability.paths.permissions":
      case "fs.capability.paths.snapshots":
      case "fs.capability.paths.truncate":
      case "fs.capability.paths.xattrs":
      case "fs.capability.multipart.uploader":
      case "fs.capability.etags.available":
      case "fs.capability.etags.preserved.in.rename":
      case "fs.capability.bulk.delete":
      case "fs.capability.virtual.block.locations":
        return true;
      case "fs.capability.paths.checksums":
        return checksums;
      case "fs.capability.paths.symlinks":
        return areSymlinksEnabled();
      default:
        return super.hasPathCapability(path, capability);
    }
  }
}
