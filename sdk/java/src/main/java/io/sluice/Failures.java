package io.sluice;

import java.io.FileNotFoundException;
import java.io.IOException;
import org.apache.hadoop.fs.ClusterStorageCapacityExceededException;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.ParentNotDirectoryException;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.PathIsNotEmptyDirectoryException;
import org.apache.hadoop.security.AccessControlException;

/** Errors of the native library as the exceptions that programs on Hadoop expect. */
final class Failures {
  private Failures() {}

  /** @param path what the call was about */
  static IOException of(NativeException e, Path path) {
    return because(e, make(e, path));
  }

  private static IOException make(NativeException e, Path path) {
    switch (e.errno()) {
      case NativeException.ENOENT:
        return new FileNotFoundException("File does not exist: " + path);
      case NativeException.EEXIST:
        return new FileAlreadyExistsException(path + " already exists");
      case NativeException.ENOTDIR:
        return new ParentNotDirectoryException("A component of " + path + " is not a directory");
      case NativeException.EISDIR:
        return new FileNotFoundException("Path is not a file: " + path);
      case NativeException.ENOTEMPTY:
        return new PathIsNotEmptyDirectoryException(path.toString());
      case NativeException.EACCES:
      case NativeException.EPERM:
        return new AccessControlException("Permission denied: " + path);
      case NativeException.EROFS:
        return new AccessControlException("The volume is open for reading only: " + path);
      case NativeException.ENOSPC:
        return new IOException("No space left on the volume for " + path);
      case NativeException.EDQUOT:
        return new ClusterStorageCapacityExceededException(
            "The quota of a directory above, of the user or of the group is exceeded: " + path);
      default:
        return new IOException(e.getMessage());
    }
  }

  static IOException because(NativeException cause, IOException e) {
    if (e.getCause() == null) {
      e.initCause(cause);
    }
    return e;
  }
}
