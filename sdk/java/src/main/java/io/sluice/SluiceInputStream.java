package io.sluice;

import java.io.EOFException;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.List;
import java.util.Locale;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executor;
import java.util.function.IntFunction;
import org.apache.hadoop.fs.ByteBufferPositionedReadable;
import org.apache.hadoop.fs.ByteBufferReadable;
import org.apache.hadoop.fs.CanSetReadahead;
import org.apache.hadoop.fs.CanUnbuffer;
import org.apache.hadoop.fs.FSExceptionMessages;
import org.apache.hadoop.fs.FSInputStream;
import org.apache.hadoop.fs.FileRange;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.StreamCapabilities;
import org.apache.hadoop.fs.statistics.IOStatistics;
import org.apache.hadoop.fs.statistics.IOStatisticsSource;
import org.apache.hadoop.fs.statistics.StreamStatisticNames;
import org.apache.hadoop.fs.statistics.impl.IOStatisticsBinding;
import org.apache.hadoop.fs.statistics.impl.IOStatisticsStore;

/**
 * A file that is read. Positional reads use neither the cursor nor its buffer, and take no lock:
 * any number of threads read at once.
 */
final class SluiceInputStream extends FSInputStream
    implements ByteBufferReadable,
        ByteBufferPositionedReadable,
        CanUnbuffer,
        CanSetReadahead,
        StreamCapabilities,
        IOStatisticsSource {
  private static final int LEAST_BUFFER = 4096;

  private final long file;
  private final Path path;
  private final FileSystem.Statistics statistics;
  private final Executor executor;
  private final int bufferSize;
  private final IOStatisticsStore counters =
      IOStatisticsBinding.iostatisticsStore()
          .withCounters(
              StreamStatisticNames.STREAM_READ_BYTES,
              StreamStatisticNames.STREAM_READ_OPERATIONS,
              StreamStatisticNames.STREAM_READ_SEEK_OPERATIONS,
              StreamStatisticNames.STREAM_READ_EXCEPTIONS,
              StreamStatisticNames.STREAM_READ_VECTORED_OPERATIONS,
              StreamStatisticNames.STREAM_READ_UNBUFFERED)
          .build();
  private volatile boolean closed;

  // The cursor, and the part of the file around it that was read last. Locked by this.
  private long position;
  private byte[] buffer = new byte[0];
  private long bufferBegin;
  private int bufferLength;
  /** Of the file, as it was known last. */
  private long length;

  SluiceInputStream(long file, Path path, FileSystem.Statistics statistics, int bufferSize, Executor executor)
      throws NativeException {
    this.file = file;
    this.path = path;
    this.statistics = statistics;
    this.bufferSize = bufferSize;
    this.executor = executor;
    length = Native.length(file);
  }

  private void check() throws IOException {
    if (closed) {
      throw new IOException(FSExceptionMessages.STREAM_IS_CLOSED);
    }
  }

  private IOException failed(NativeException e) {
    counters.incrementCounter(StreamStatisticNames.STREAM_READ_EXCEPTIONS, 1);
    return Failures.of(e, path);
  }

  private void count(int read) {
    counters.incrementCounter(StreamStatisticNames.STREAM_READ_OPERATIONS, 1);
    if (read > 0) {
      counters.incrementCounter(StreamStatisticNames.STREAM_READ_BYTES, read);
      statistics.incrementBytesRead(read);
    }
  }

  /** Reads without the cursor. Returns 0 at the end of the file. */
  private int readAt(long at, byte[] bytes, int offset, int length) throws IOException {
    check();
    try {
      return Native.read(file, at, bytes, offset, length);
    } catch (NativeException e) {
      throw failed(e);
    }
  }

  /** Reads into a buffer from its position on, without the cursor. Returns 0 at the end. */
  private int readAt(long at, ByteBuffer target) throws IOException {
    check();
    if (target.isReadOnly()) {
      throw new java.nio.ReadOnlyBufferException();
    }
    int wanted = target.remaining();
    int read;
    if (target.isDirect()) {
      try {
        read = Native.readDirect(file, at, target, target.position(), wanted);
      } catch (NativeException e) {
        throw failed(e);
      }
      target.position(target.position() + read);
    } else if (target.hasArray()) {
      read = readAt(at, target.array(), target.arrayOffset() + target.position(), wanted);
      target.position(target.position() + read);
    } else {
      byte[] bytes = new byte[wanted];
      read = readAt(at, bytes, 0, wanted);
      target.put(bytes, 0, read);
    }
    return read;
  }

  private static int orEnd(int read) {
    return read == 0 ? -1 : read;
  }

  // Reads at the cursor.

  private boolean isBuffered() {
    return position >= bufferBegin && position < bufferBegin + bufferLength;
  }

  private boolean fill() throws IOException {
    if (isBuffered()) {
      return true;
    }
    // No more than there is: most files are small. One may have grown since its length was asked.
    int wanted = (int) Math.min(bufferSize, Math.max(length - position, LEAST_BUFFER));
    if (buffer.length < wanted) {
      buffer = new byte[wanted];
    }
    bufferLength = 0;
    bufferBegin = position;
    bufferLength = readAt(position, buffer, 0, buffer.length);
    return bufferLength > 0;
  }

  @Override
  public synchronized int read() throws IOException {
    check();
    if (!fill()) {
      return -1;
    }
    int value = buffer[(int) (position - bufferBegin)] & 0xff;
    position++;
    count(1);
    return value;
  }

  @Override
  public synchronized int read(byte[] bytes, int offset, int length) throws IOException {
    check();
    if ((offset | length | (bytes.length - offset - length)) < 0) {
      throw new IndexOutOfBoundsException();
    }
    if (length == 0) {
      return 0;
    }
    int read;
    if (!isBuffered() && length >= bufferSize) {
      read = readAt(position, bytes, offset, length);
    } else if (!fill()) {
      read = 0;
    } else {
      int from = (int) (position - bufferBegin);
      read = Math.min(length, bufferLength - from);
      System.arraycopy(buffer, from, bytes, offset, read);
    }
    position += read;
    count(read);
    return orEnd(read);
  }

  @Override
  public synchronized int read(ByteBuffer target) throws IOException {
    check();
    if (!target.hasRemaining()) {
      return 0;
    }
    int read;
    if (isBuffered()) {
      int from = (int) (position - bufferBegin);
      read = Math.min(target.remaining(), bufferLength - from);
      target.put(buffer, from, read);
    } else {
      read = readAt(position, target);
    }
    position += read;
    count(read);
    return orEnd(read);
  }

  @Override
  public synchronized void seek(long target) throws IOException {
    check();
    if (target < 0) {
      throw new EOFException(FSExceptionMessages.NEGATIVE_SEEK);
    }
    if (target > knownLength(target)) {
      throw new EOFException(FSExceptionMessages.CANNOT_SEEK_PAST_EOF);
    }
    counters.incrementCounter(StreamStatisticNames.STREAM_READ_SEEK_OPERATIONS, 1);
    position = target;
  }

  /** The length of the file; asked for again if it seems to be too short. */
  private synchronized long knownLength(long wanted) throws IOException {
    if (wanted > length) {
      try {
        length = Native.length(file);
      } catch (NativeException e) {
        throw failed(e);
      }
    }
    return length;
  }

  @Override
  public synchronized long skip(long count) throws IOException {
    check();
    long skipped = Math.max(0, Math.min(count, knownLength(position + count) - position));
    position += skipped;
    return skipped;
  }

  @Override
  public synchronized long getPos() {
    return position;
  }

  @Override
  public synchronized int available() throws IOException {
    check();
    return (int) Math.min(Integer.MAX_VALUE, Math.max(0, length - position));
  }

  @Override
  public boolean seekToNewSource(long target) {
    return false;
  }

  // Positional reads.

  private void validate(long at, byte[] bytes, int offset, int length) throws IOException {
    validatePositionedReadArgs(at, bytes, offset, length);
    if (offset < 0) {
      throw new IndexOutOfBoundsException("the offset in the buffer is negative");
    }
  }

  @Override
  public int read(long at, byte[] bytes, int offset, int length) throws IOException {
    check();
    validate(at, bytes, offset, length);
    if (length == 0) {
      return 0;
    }
    int read = readAt(at, bytes, offset, length);
    count(read);
    return orEnd(read);
  }

  @Override
  public void readFully(long at, byte[] bytes, int offset, int length) throws IOException {
    check();
    validate(at, bytes, offset, length);
    int read = length == 0 ? 0 : readAt(at, bytes, offset, length);
    count(read);
    if (read < length) {
      throw new EOFException(FSExceptionMessages.EOF_IN_READ_FULLY);
    }
  }

  @Override
  public int read(long at, ByteBuffer target) throws IOException {
    check();
    if (at < 0) {
      throw new EOFException(FSExceptionMessages.NEGATIVE_SEEK);
    }
    if (!target.hasRemaining()) {
      return 0;
    }
    int read = readAt(at, target);
    count(read);
    return orEnd(read);
  }

  @Override
  public void readFully(long at, ByteBuffer target) throws IOException {
    int wanted = target.remaining();
    int read = wanted == 0 ? 0 : read(at, target);
    if (read < wanted) {
      throw new EOFException(FSExceptionMessages.EOF_IN_READ_FULLY);
    }
  }

  /**
   * Reads all ranges at once. Ranges may overlap, and come in any order. The result of one that ends
   * after the file is an {@link EOFException}; the others are read.
   */
  @Override
  public void readVectored(List<? extends FileRange> ranges, IntFunction<ByteBuffer> allocate)
      throws IOException {
    check();
    java.util.Objects.requireNonNull(ranges, "ranges");
    java.util.Objects.requireNonNull(allocate, "allocate");
    for (FileRange range : ranges) {
      java.util.Objects.requireNonNull(range, "range");
      if (range.getLength() < 0) {
        throw new IllegalArgumentException("the length of " + range + " is negative");
      }
      if (range.getOffset() < 0) {
        throw new EOFException("the offset of " + range + " is negative");
      }
    }
    counters.incrementCounter(StreamStatisticNames.STREAM_READ_VECTORED_OPERATIONS, 1);
    for (FileRange range : ranges) {
      CompletableFuture<ByteBuffer> data = new CompletableFuture<>();
      range.setData(data);
      executor.execute(() -> {
        try {
          ByteBuffer target = allocate.apply(range.getLength());
          int begin = target.position();
          if (range.getLength() < target.remaining()) {
            target.limit(begin + range.getLength());
          }
          readFully(range.getOffset(), target);
          target.position(begin);
          data.complete(target);
        } catch (Throwable e) {
          data.completeExceptionally(e);
        }
      });
    }
  }

  @Override
  public int minSeekForVectorReads() {
    // Ranges are not joined: each costs no more alone.
    return 0;
  }

  @Override
  public synchronized void unbuffer() {
    buffer = new byte[0];
    bufferLength = 0;
    counters.incrementCounter(StreamStatisticNames.STREAM_READ_UNBUFFERED, 1);
  }

  /** The volume reads ahead as far as its own settings say. */
  @Override
  public void setReadahead(Long readahead) {}

  @Override
  public void close() throws IOException {
    synchronized (this) {
      if (closed) {
        return;
      }
      closed = true;
      buffer = new byte[0];
    }
    try {
      Native.closeFile(file);
    } catch (NativeException e) {
      throw failed(e);
    }
  }

  @Override
  public boolean hasCapability(String capability) {
    switch (capability.toLowerCase(Locale.ROOT)) {
      case StreamCapabilities.READAHEAD:
      case StreamCapabilities.UNBUFFER:
      case StreamCapabilities.READBYTEBUFFER:
      case StreamCapabilities.PREADBYTEBUFFER:
      case StreamCapabilities.IOSTATISTICS:
      case "in:readvectored":
        return true;
      default:
        return false;
    }
  }

  @Override
  public IOStatistics getIOStatistics() {
    return counters;
  }

  @Override
  public String toString() {
    return "SluiceInputStream{" + path + ", " + counters + "}";
  }
}
