package io.sluice;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeFalse;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.regex.Pattern;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.junit.jupiter.api.Test;

/** A JVM is killed while it writes. */
class TestKilled {
  private static final int LINE = 1000;

  /** What the JVM that is killed runs: it writes lines, and tells how many are safe. */
  public static final class Writer {
    public static void main(String[] args) throws Exception {
      FileSystem fs = Volumes.fileSystem(impatient());
      FSDataOutputStream out = fs.create(new Path(args[0]));
      for (int i = 0; ; i++) {
        out.write(line(i));
        if (i % 7 == 0) {
          out.hsync();
          System.out.println(i + 1);
          System.out.flush();
        }
      }
    }
  }

  /** A client that shows every second that it lives: others wait for five of these. */
  private static Configuration impatient() {
    Configuration conf = new Configuration();
    conf.set("sluice.heartbeat", "1");
    return conf;
  }

  private static byte[] line(int number) {
    StringBuilder line = new StringBuilder(LINE).append(number);
    while (line.length() < LINE - 1) {
      line.append('.');
    }
    return line.append('\n').toString().getBytes(StandardCharsets.US_ASCII);
  }

  private static Process writer(Path path) throws IOException {
    List<String> command = new ArrayList<>();
    command.add(Paths.get(System.getProperty("java.home"), "bin", "java").toString());
    for (String name : new String[] {"sluice.native", "sluice.test.meta"}) {
      command.add("-D" + name + "=" + System.getProperty(name));
    }
    command.add("-cp");
    command.add(System.getProperty("surefire.test.class.path", System.getProperty("java.class.path")));
    command.add(Writer.class.getName());
    command.add(path.toString());
    return new ProcessBuilder(command).redirectError(ProcessBuilder.Redirect.INHERIT).start();
  }

  /** Whether a process has a session of the volume. */
  private static boolean hasSession(long process) throws Exception {
    Process status =
        new ProcessBuilder(
                System.getProperty("sluice.test.program"), "status", System.getProperty("sluice.test.meta"))
            .redirectError(ProcessBuilder.Redirect.INHERIT)
            .start();
    String said = new String(status.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
    assertEquals(0, status.waitFor(), said);
    return Pattern.compile("\"ProcessID\":\\s*" + process + "\\b").matcher(said).find();
  }

  @Test
  void itsSessionIsCleaned() throws Exception {
    assumeFalse(System.getProperty("sluice.test.program", "").isEmpty());
    Path dir = Volumes.fresh("killed");
    try (FileSystem other = Volumes.fileSystem(impatient())) {
      Process writer = writer(new Path(dir, "f"));
      try (BufferedReader out = new BufferedReader(new InputStreamReader(writer.getInputStream()))) {
        out.readLine();
        assertTrue(hasSession(writer.pid()), "while it writes");
        writer.destroyForcibly();
      }
      writer.waitFor();
      long until = System.nanoTime() + TimeUnit.MINUTES.toNanos(2);
      while (hasSession(writer.pid())) {
        assertTrue(System.nanoTime() < until, "its session is still there");
      }
      assertTrue(other.delete(dir, true));
    }
  }

  @Test
  void whatHsyncAcknowledgedIsThere() throws Exception {
    Path dir = Volumes.fresh("killed");
    for (int round = 0; round < 3; round++) {
      Path path = new Path(dir, "f" + round);
      Process writer = writer(path);
      int safe = 0;
      try (BufferedReader out = new BufferedReader(new InputStreamReader(writer.getInputStream()))) {
        for (String said = out.readLine(); said != null; said = out.readLine()) {
          safe = Integer.parseInt(said);
          if (safe > 100 + 50 * round && writer.isAlive()) {
            writer.destroyForcibly();
          }
        }
      } catch (IOException e) {
        // It is gone, and its output with it.
      }
      writer.waitFor();
      assertTrue(safe > 100, "it wrote " + safe + " lines");
      try (FileSystem fs = Volumes.fileSystem()) {
        byte[] content = Volumes.read(fs, path);
        assertTrue(content.length >= safe * LINE, content.length + " bytes, not " + safe * LINE);
        for (int i = 0; i < safe; i++) {
          String found = new String(content, i * LINE, LINE, StandardCharsets.US_ASCII);
          assertEquals(new String(line(i), StandardCharsets.US_ASCII), found);
        }
        fs.delete(dir, true);
      }
    }
  }
}
