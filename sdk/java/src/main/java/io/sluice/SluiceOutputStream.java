package io.sluice;

import java.io.IOException;
import java.io.OutputStream;
import java.nio.ByteBuffer;
import java.nio.channels.ClosedChannelException;
import java.util.Locale;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.StreamCapabilities;
import org.apache.hadoop.fs.Syncable;
import org.apache.hadoop.fs.statistics.IOStatistics;
import org.apache.hadoop.fs.statistics.IOStatisticsSource;
import org.apache.hadoop.fs.statistics.StreamStatisticNames;
import org.apache.hadoop.fs.statistics.impl.IOStatisticsBinding;
import org.apache.hadoop.fs.statistics.impl.IOStatisticsStore;

/**
 * A file that is written at its end. {@code hflush} makes what was written visible to all who open
 * the file; {@code hsync} also makes it survive a power cut. Both survive the end of this process.
 */
final class SluiceOutputStream extends OutputStream
    implements Syncable, StreamCapabilities, IOStatisticsSource {
  private static final Buffers BUFFERS = new Buffers(256 << 10);

  private final long file;
  private final Path path;
  private final FileSystem.Statistics statistics;
  private final IOStatisticsStore counters =
      IOStatisticsBinding.iostatisticsStore()
          .withCounters(
              StreamStatisticNames.STREAM_WRITE_BYTES,
              StreamStatisticNames.STREAM_WRITE_EXCEPTIONS,
              "op_hflush",
              "op_hsync")
          .build();
  /** Null once it is closed. */
  private ByteBuffer buffer = BUFFERS.take();

  SluiceOutputStream(long file, Path path, FileSystem.Statistics statistics) {
    this.file = file;
    this.path = path;
    this.statistics = statistics;
  }

  private ByteBuffer open() throws IOException {
    if (buffer == null) {
      throw new ClosedChannelException();
    }
    return buffer;
  }

  @Override
  public synchronized void write(int b) throws IOException {
    if (!open().hasRemaining()) {
      drain();
    }
    buffer.put((byte) b);
    counters.incrementCounter(StreamStatisticNames.STREAM_WRITE_BYTES, 1);
  }

  @Override
  public synchronized void write(byte[] bytes, int offset, int length) throws IOException {
    open();
    if ((offset | length | (bytes.length - offset - length)) < 0) {
      throw new IndexOutOfBoundsException();
    }
    int left = length;
    while (left > 0) {
      if (!buffer.hasRemaining()) {
        drain();
      }
      int part = Math.min(left, buffer.remaining());
      buffer.put(bytes, offset + length - left, part);
      left -= part;
    }
    counters.incrementCounter(StreamStatisticNames.STREAM_WRITE_BYTES, length);
  }

  private void drain() throws IOException {
    int length = buffer.position();
    if (length > 0) {
      run(() -> Native.append(file, buffer, length));
      statistics.incrementBytesWritten(length);
      buffer.clear();
    }
  }

  private interface Call {
    void run() throws NativeException;
  }

  private void run(Call call) throws IOException {
    try {
      call.run();
    } catch (NativeException e) {
      counters.incrementCounter(StreamStatisticNames.STREAM_WRITE_EXCEPTIONS, 1);
      throw Failures.of(e, path);
    }
  }

  /** Gives what was written to the client, which uploads it. Nobody else sees it yet. */
  @Override
  public synchronized void flush() throws IOException {
    if (buffer != null) {
      drain();
    }
  }

  @Override
  public synchronized void hflush() throws IOException {
    open();
    drain();
    run(() -> Native.flush(file, false));
    counters.incrementCounter("op_hflush", 1);
  }

  @Override
  public synchronized void hsync() throws IOException {
    open();
    drain();
    run(() -> Native.flush(file, true));
    counters.incrementCounter("op_hsync", 1);
  }

  @Override
  public synchronized void close() throws IOException {
    if (buffer == null) {
      return;
    }
    ByteBuffer last = buffer;
    try {
      drain();
    } finally {
      buffer = null;
      BUFFERS.giveBack(last);
      run(() -> Native.closeFile(file));
    }
  }

  @Override
  public boolean hasCapability(String capability) {
    switch (capability.toLowerCase(Locale.ROOT)) {
      case StreamCapabilities.HFLUSH:
      case StreamCapabilities.HSYNC:
      case StreamCapabilities.IOSTATISTICS:
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
    return "SluiceOutputStream{" + path + ", " + counters + "}";
  }
}
