package io.sluice;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.hadoop.fs.permission.AclEntry;
import org.apache.hadoop.fs.permission.AclEntryScope;
import org.apache.hadoop.fs.permission.AclEntryType;
import org.apache.hadoop.fs.permission.FsAction;

/**
 * One ACL of a node: that of access, or the default for what is made in a directory.
 *
 * <p>What must stay true: what the entries of a call leave out is made as HDFS makes it: the owner,
 * the group and others from the mode, the mask from all that it limits.
 */
final class Acls {
  /** Names of users and groups. */
  interface Names {
    int id(boolean group, String name) throws IOException;

    String name(boolean group, int id) throws IOException;
  }

  private final AclEntryScope scope;
  private final Map<String, FsAction> users = new TreeMap<>();
  private final Map<String, FsAction> groups = new TreeMap<>();
  private FsAction owner;
  private FsAction group;
  private FsAction other;
  /** Null if there is none. */
  private FsAction mask;
  /** Whether a caller named the mask, so that it is not made. */
  private boolean maskNamed;

  /** An ACL that says what a mode says. */
  Acls(AclEntryScope scope, int mode) {
    this.scope = scope;
    owner = action(mode >> 6);
    group = action(mode >> 3);
    other = action(mode);
  }

  /** An ACL from the record of the native library; what an empty one says is the mode. */
  static Acls read(AclEntryScope scope, int mode, byte[] record, Names names) throws IOException {
    Acls acl = new Acls(scope, mode);
    if (record.length == 0) {
      return acl;
    }
    ByteBuffer in = ByteBuffer.wrap(record);
    acl.owner = action(in.getInt());
    acl.group = action(in.getInt());
    int mask = in.getInt();
    acl.mask = mask < 0 ? null : action(mask);
    acl.other = action(in.getInt());
    for (int users = in.getInt(); in.hasRemaining(); users--) {
      int id = in.getInt();
      FsAction action = action(in.getInt());
      (users > 0 ? acl.users : acl.groups).put(names.name(users <= 0, id), action);
    }
    return acl;
  }

  private static FsAction action(int bits) {
    return FsAction.values()[bits & 7];
  }

  /** Whether it says no more than a mode does. */
  boolean isMinimal() {
    return users.isEmpty() && groups.isEmpty() && mask == null;
  }

  /** Makes room for entries that replace all of this scope but those that every ACL has. */
  void clear() {
    users.clear();
    groups.clear();
    mask = null;
    maskNamed = false;
  }

  /** Adds or replaces the entries of this scope. Returns whether there were any. */
  boolean put(List<AclEntry> entries) throws IOException {
    boolean any = false;
    for (AclEntry entry : entries) {
      if (entry.getScope() != scope) {
        continue;
      }
      any = true;
      FsAction action = entry.getPermission();
      if (action == null) {
        throw new IOException("Invalid ACL: the entry " + entry + " has no permission");
      }
      String name = entry.getName();
      switch (entry.getType()) {
        case USER:
          if (name == null) {
            owner = action;
          } else {
            users.put(name, action);
          }
          break;
        case GROUP:
          if (name == null) {
            group = action;
          } else {
            groups.put(name, action);
          }
          break;
        case MASK:
          refuseName(entry);
          mask = action;
          maskNamed = true;
          break;
        default:
          refuseName(entry);
          other = action;
          break;
      }
    }
    return any;
  }

  private static void refuseName(AclEntry entry) throws IOException {
    if (entry.getName() != null) {
      throw new IOException("Invalid ACL: the entry " + entry + " must not have a name");
    }
  }

  /** Removes the named entries of this scope. Returns whether there were any. */
  boolean remove(List<AclEntry> entries) throws IOException {
    boolean any = false;
    for (AclEntry entry : entries) {
      if (entry.getScope() != scope) {
        continue;
      }
      any = true;
      String name = entry.getName();
      if (entry.getType() == AclEntryType.USER && name != null) {
        users.remove(name);
      } else if (entry.getType() == AclEntryType.GROUP && name != null) {
        groups.remove(name);
      } else if (entry.getType() == AclEntryType.MASK) {
        mask = null;
      } else if (scope == AclEntryScope.ACCESS) {
        throw new IOException("Invalid ACL: the entry " + entry + " cannot be removed");
      }
    }
    return any;
  }

  /** Makes the mask from what it limits, unless a caller named one. */
  void complete() {
    if (maskNamed) {
      return;
    }
    if (users.isEmpty() && groups.isEmpty()) {
      mask = null;
      return;
    }
    FsAction all = group;
    for (FsAction action : users.values()) {
      all = all.or(action);
    }
    for (FsAction action : groups.values()) {
      all = all.or(action);
    }
    mask = all;
  }

  /** The entries, as HDFS lists them: without those of the mode for an access ACL. */
  List<AclEntry> entries() {
    List<AclEntry> entries = new ArrayList<>();
    boolean defaults = scope == AclEntryScope.DEFAULT;
    if (defaults) {
      entries.add(entry(AclEntryType.USER, null, owner));
    }
    users.forEach((name, action) -> entries.add(entry(AclEntryType.USER, name, action)));
    if (defaults || !isMinimal()) {
      entries.add(entry(AclEntryType.GROUP, null, group));
    }
    groups.forEach((name, action) -> entries.add(entry(AclEntryType.GROUP, name, action)));
    if (defaults) {
      if (mask != null) {
        entries.add(entry(AclEntryType.MASK, null, mask));
      }
      entries.add(entry(AclEntryType.OTHER, null, other));
    }
    return entries;
  }

  private AclEntry entry(AclEntryType type, String name, FsAction action) {
    return new AclEntry.Builder()
        .setScope(scope)
        .setType(type)
        .setName(name)
        .setPermission(action)
        .build();
  }

  /** The record for the native library. */
  byte[] toBytes(Names names) throws IOException {
    Record record = new Record();
    record.addInt(owner.ordinal()).addInt(group.ordinal());
    record.addInt(mask == null ? -1 : mask.ordinal()).addInt(other.ordinal());
    record.addInt(users.size());
    for (Map.Entry<String, FsAction> entry : users.entrySet()) {
      record.addInt(names.id(false, entry.getKey())).addInt(entry.getValue().ordinal());
    }
    for (Map.Entry<String, FsAction> entry : groups.entrySet()) {
      record.addInt(names.id(true, entry.getKey())).addInt(entry.getValue().ordinal());
    }
    return record.toBytes();
  }
}
