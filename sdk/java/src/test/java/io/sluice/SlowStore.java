package io.sluice;

import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Map;
import java.util.concurrent.ConcurrentSkipListMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.locks.LockSupport;

/** An object store of the tests that speaks as much of S3 as a volume needs, and answers late. */
final class SlowStore implements AutoCloseable {
  private final HttpServer server;
  private final ExecutorService threads = Executors.newCachedThreadPool();
  private final Map<String, byte[]> objects = new ConcurrentSkipListMap<>();
  /** How long each read takes. */
  volatile long readNanos;

  SlowStore() throws IOException {
    // Else an answer in two packets waits for an acknowledgement in between.
    System.setProperty("sun.net.httpserver.nodelay", "true");
    server = HttpServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 128);
    server.setExecutor(threads);
    server.createContext("/", this::answer);
    server.start();
  }

  String bucket() {
    return "http://127.0.0.1:" + server.getAddress().getPort() + "/bucket";
  }

  private void answer(HttpExchange exchange) throws IOException {
    String key = exchange.getRequestURI().getPath();
    byte[] body = exchange.getRequestBody().readAllBytes();
    switch (exchange.getRequestMethod()) {
      case "PUT":
        objects.put(key, body);
        reply(exchange, 200, new byte[0]);
        break;
      case "DELETE":
        objects.remove(key);
        reply(exchange, 204, new byte[0]);
        break;
      case "HEAD":
      case "GET":
        if (exchange.getRequestURI().getRawQuery() != null) {
          reply(exchange, 200, list(key, exchange.getRequestURI().getQuery()));
        } else if (!objects.containsKey(key)) {
          String error = "<Error><Code>NoSuchKey</Code><Message>none</Message></Error>";
          reply(exchange, 404, error.getBytes(StandardCharsets.UTF_8));
        } else {
          long until = System.nanoTime() + readNanos;
          while (System.nanoTime() < until) {
            LockSupport.parkNanos(until - System.nanoTime());
          }
          read(exchange, objects.get(key));
        }
        break;
      default:
        reply(exchange, 400, new byte[0]);
    }
  }

  private byte[] list(String bucket, String query) {
    String prefix = "";
    for (String pair : query.split("&")) {
      prefix = pair.startsWith("prefix=") ? pair.substring("prefix=".length()) : prefix;
    }
    String base = bucket.endsWith("/") ? bucket : bucket + "/";
    StringBuilder list = new StringBuilder("<ListBucketResult><IsTruncated>false</IsTruncated>");
    for (Map.Entry<String, byte[]> object : objects.entrySet()) {
      if (object.getKey().startsWith(base + prefix)) {
        list.append("<Contents><Key>").append(object.getKey().substring(base.length()));
        list.append("</Key><Size>").append(object.getValue().length);
        list.append("</Size><LastModified>2026-11-26T00:00:00Z</LastModified></Contents>");
      }
    }
    return list.append("</ListBucketResult>").toString().getBytes(StandardCharsets.UTF_8);
  }

  private static void read(HttpExchange exchange, byte[] object) throws IOException {
    String range = exchange.getRequestHeaders().getFirst("Range");
    if (range == null) {
      reply(exchange, 200, object);
      return;
    }
    String[] ends = range.substring("bytes=".length()).split("-");
    int from = Integer.parseInt(ends[0]);
    int to = ends.length > 1 ? Math.min(Integer.parseInt(ends[1]), object.length - 1) : object.length - 1;
    exchange.getResponseHeaders().set("Content-Range", "bytes " + from + "-" + to + "/" + object.length);
    reply(exchange, 206, Arrays.copyOfRange(object, from, to + 1));
  }

  private static void reply(HttpExchange exchange, int status, byte[] body) throws IOException {
    exchange.getResponseHeaders().set("ETag", "\"0\"");
    exchange.getResponseHeaders().set("Last-Modified", "Thu, 26 Nov 2026 00:00:00 GMT");
    boolean head = exchange.getRequestMethod().equals("HEAD");
    if (head) {
      exchange.getResponseHeaders().set("Content-Length", Integer.toString(body.length));
    }
    exchange.sendResponseHeaders(status, head || body.length == 0 ? -1 : body.length);
    if (!head && body.length > 0) {
      exchange.getResponseBody().write(body);
    }
    exchange.close();
  }

  @Override
  public void close() {
    server.stop(0);
    threads.shutdownNow();
  }
}
