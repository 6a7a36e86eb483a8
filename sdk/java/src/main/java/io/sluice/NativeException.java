package io.sluice;

import java.io.IOException;

/** What the native library throws: the number of an error, and what happened to what. */
class NativeException extends IOException {
  private static final long serialVersionUID = 1;

  static final int EPERM = 1;
  static final int ENOENT = 2;
  static final int EIO = 5;
  static final int EBADF = 9;
  static final int EAGAIN = 11;
  static final int EACCES = 13;
  static final int EEXIST = 17;
  static final int ENOTDIR = 20;
  static final int EISDIR = 21;
  static final int EINVAL = 22;
  static final int ENOSPC = 28;
  static final int EROFS = 30;
  static final int ENAMETOOLONG = 36;
  static final int ENOTEMPTY = 39;
  static final int ENODATA = 61;
  static final int ENOTSUP = 95;
  static final int EDQUOT = 122;

  private final int errno;

  /** @param text the number of the error, a space, and the message */
  NativeException(String text) {
    super(text.substring(text.indexOf(' ') + 1));
    errno = Integer.parseInt(text.substring(0, text.indexOf(' ')));
  }

  int errno() {
    return errno;
  }
}
