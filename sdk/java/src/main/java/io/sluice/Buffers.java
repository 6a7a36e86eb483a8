package io.sluice;

import java.nio.ByteBuffer;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.atomic.AtomicInteger;

/**
 * Direct buffers of one size, used again: making one costs more than filling it.
 *
 * <p>What must stay true: a buffer that was given back is not used by who gave it.
 */
final class Buffers {
  private static final int KEPT = 64;

  private final int size;
  private final ConcurrentLinkedQueue<ByteBuffer> free = new ConcurrentLinkedQueue<>();
  private final AtomicInteger count = new AtomicInteger();

  Buffers(int size) {
    this.size = size;
  }

  ByteBuffer take() {
    ByteBuffer buffer = free.poll();
    if (buffer == null) {
      return ByteBuffer.allocateDirect(size);
    }
    count.decrementAndGet();
    buffer.clear();
    return buffer;
  }

  void giveBack(ByteBuffer buffer) {
    if (count.incrementAndGet() <= KEPT) {
      free.add(buffer);
    } else {
      count.decrementAndGet();
    }
  }
}
