package io.sluice;

import java.io.IOException;
import java.net.URI;
import java.net.URISyntaxException;
import java.util.EnumSet;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.DelegateToFileSystem;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.LocatedFileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RemoteIterator;
import org.apache.hadoop.fs.XAttrSetFlag;
import org.apache.hadoop.fs.permission.AclEntry;
import org.apache.hadoop.fs.permission.AclStatus;
import org.apache.hadoop.fs.permission.FsAction;

/** The file system for users of {@link org.apache.hadoop.fs.FileContext}. */
public class SluiceAbstractFileSystem extends DelegateToFileSystem {
  /** As {@link org.apache.hadoop.fs.AbstractFileSystem} makes it. */
  public SluiceAbstractFileSystem(URI uri, Configuration conf) throws IOException, URISyntaxException {
    super(uri, new SluiceFileSystem(), conf, uri.getScheme(), false);
  }

  private SluiceFileSystem fs() {
    return (SluiceFileSystem) fsImpl;
  }

  @Override
  public int getUriDefaultPort() {
    return -1;
  }

  @Override
  public void renameInternal(Path src, Path dst) throws IOException {
    fs().move(src, dst, false);
  }

  @Override
  public void renameInternal(Path src, Path dst, boolean overwrite) throws IOException {
    fs().move(src, dst, overwrite);
  }

  @Override
  public RemoteIterator<FileStatus> listStatusIterator(Path path) throws IOException {
    return fs().listStatusIterator(path);
  }

  @Override
  public RemoteIterator<LocatedFileStatus> listLocatedStatus(Path path) throws IOException {
    return fs().listLocatedStatus(path);
  }

  @Override
  public void access(Path path, FsAction mode) throws IOException {
    fs().access(path, mode);
  }

  @Override
  public void modifyAclEntries(Path path, List<AclEntry> entries) throws IOException {
    fs().modifyAclEntries(path, entries);
  }

  @Override
  public void removeAclEntries(Path path, List<AclEntry> entries) throws IOException {
    fs().removeAclEntries(path, entries);
  }

  @Override
  public void removeDefaultAcl(Path path) throws IOException {
    fs().removeDefaultAcl(path);
  }

  @Override
  public void removeAcl(Path path) throws IOException {
    fs().removeAcl(path);
  }

  @Override
  public void setAcl(Path path, List<AclEntry> entries) throws IOException {
    fs().setAcl(path, entries);
  }

  @Override
  public AclStatus getAclStatus(Path path) throws IOException {
    return fs().getAclStatus(path);
  }

  @Override
  public void setXAttr(Path path, String name, byte[] value, EnumSet<XAttrSetFlag> flags)
      throws IOException {
    fs().setXAttr(path, name, value, flags);
  }

  @Override
  public byte[] getXAttr(Path path, String name) throws IOException {
    return fs().getXAttr(path, name);
  }

  @Override
  public Map<String, byte[]> getXAttrs(Path path) throws IOException {
    return fs().getXAttrs(path);
  }

  @Override
  public Map<String, byte[]> getXAttrs(Path path, List<String> names) throws IOException {
    return fs().getXAttrs(path, names);
  }

  @Override
  public List<String> listXAttrs(Path path) throws IOException {
    return fs().listXAttrs(path);
  }

  @Override
  public void removeXAttr(Path path, String name) throws IOException {
    fs().removeXAttr(path, name);
  }

  @Override
  public Path createSnapshot(Path path, String name) throws IOException {
    return fs().createSnapshot(path, name);
  }

  @Override
  public void renameSnapshot(Path path, String from, String to) throws IOException {
    fs().renameSnapshot(path, from, to);
  }

  @Override
  public void deleteSnapshot(Path path, String name) throws IOException {
    fs().deleteSnapshot(path, name);
  }
}
