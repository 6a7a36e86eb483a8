package io.sluice;

import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.io.UncheckedIOException;
import java.util.AbstractMap;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Comparator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Executor;
import org.apache.hadoop.fs.BulkDelete;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.PathIsNotEmptyDirectoryException;
import org.apache.hadoop.fs.statistics.IOStatistics;

/** Deletes many files at once: their names leave in few commits. */
final class SluiceBulkDelete implements BulkDelete {
  private static final int PAGE = 250;

  /** Deletes one file. */
  interface Delete {
    boolean delete(Path path) throws IOException;
  }

  private final Path base;
  private final Delete delete;
  private final Executor executor;

  private SluiceBulkDelete(Path base, Delete delete, Executor executor) {
    this.base = base;
    this.delete = delete;
    this.executor = executor;
  }

  /** Its type is the one that Hadoop before 3.4.1 lacks: nothing else there may name it. */
  static BulkDelete of(Path base, Delete delete, Executor executor) {
    return new SluiceBulkDelete(base, delete, executor);
  }

  @Override
  public int pageSize() {
    return PAGE;
  }

  @Override
  public Path basePath() {
    return base;
  }

  @Override
  public List<Map.Entry<Path, String>> bulkDelete(Collection<Path> paths) throws IOException {
    if (paths.size() > PAGE) {
      throw new IllegalArgumentException("at most " + PAGE + " paths at once, not " + paths.size());
    }
    for (Path path : paths) {
      boolean absolute = path != null && path.isAbsolute();
      String above = base.toUri().getPath();
      above = above.endsWith("/") ? above : above + "/";
      if (!absolute || !(path.toUri().getPath() + "/").startsWith(above)) {
        throw new IllegalArgumentException("the path " + path + " is not below " + base);
      }
    }
    Map<Path, CompletableFuture<Void>> running = new LinkedHashMap<>();
    for (Path path : paths) {
      running.put(path, CompletableFuture.runAsync(() -> run(path), executor));
    }
    List<Map.Entry<Path, String>> failed = new ArrayList<>();
    List<Path> directories = new ArrayList<>();
    for (Map.Entry<Path, CompletableFuture<Void>> entry : running.entrySet()) {
      try {
        entry.getValue().get();
      } catch (ExecutionException e) {
        if (cause(e) instanceof PathIsNotEmptyDirectoryException) {
          directories.add(entry.getKey());
        } else {
          failed.add(new AbstractMap.SimpleEntry<>(entry.getKey(), cause(e).toString()));
        }
      } catch (InterruptedException e) {
        throw (IOException) new InterruptedIOException("bulk delete").initCause(e);
      }
    }
    // What is in them may have been deleted beside them. The deepest come first.
    directories.sort(Comparator.comparingInt(Path::depth).reversed());
    for (Path directory : directories) {
      try {
        delete.delete(directory);
      } catch (IOException e) {
        failed.add(new AbstractMap.SimpleEntry<>(directory, e.toString()));
      }
    }
    return failed;
  }

  private static Throwable cause(ExecutionException e) {
    Throwable cause = e.getCause();
    return cause instanceof UncheckedIOException ? cause.getCause() : cause;
  }

  private void run(Path path) {
    try {
      delete.delete(path);
    } catch (FileNotFoundException e) {
      // That it is gone is all that is wanted.
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  @Override
  public IOStatistics getIOStatistics() {
    return null;
  }

  @Override
  public void close() {}
}
