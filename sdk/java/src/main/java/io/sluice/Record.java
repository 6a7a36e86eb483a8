package io.sluice;

import java.io.ByteArrayOutputStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;

/** Records that go to the native library and come from it: big-endian, bytes after their length. */
final class Record {
  private final ByteArrayOutputStream out = new ByteArrayOutputStream();

  Record add(String text) {
    return add(bytes(text));
  }

  Record add(byte[] bytes) {
    addInt(bytes.length);
    out.write(bytes, 0, bytes.length);
    return this;
  }

  Record addInt(int number) {
    for (int shift = 24; shift >= 0; shift -= 8) {
      out.write(number >> shift);
    }
    return this;
  }

  byte[] toBytes() {
    return out.toByteArray();
  }

  static byte[] bytes(String text) {
    return text.getBytes(StandardCharsets.UTF_8);
  }

  static String text(byte[] bytes) {
    return new String(bytes, StandardCharsets.UTF_8);
  }

  /** Takes bytes after their length. */
  static byte[] take(ByteBuffer record) {
    byte[] bytes = new byte[record.getInt()];
    record.get(bytes);
    return bytes;
  }
}
