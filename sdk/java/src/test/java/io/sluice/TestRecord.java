package io.sluice;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;

import java.nio.ByteBuffer;
import org.apache.hadoop.conf.Configuration;
import org.junit.jupiter.api.Test;

/** What needs no volume. */
class TestRecord {
  @Test
  void whatWasAddedIsTaken() {
    ByteBuffer record = ByteBuffer.wrap(new Record().add("näme").addInt(-7).add(new byte[0]).toBytes());
    assertEquals("näme", Record.text(Record.take(record)));
    assertEquals(-7, record.getInt());
    assertArrayEquals(new byte[0], Record.take(record));
    assertEquals(0, record.remaining());
  }

  @Test
  void settingsAreLookedUpInTheirOrder() {
    Configuration conf = new Configuration(false);
    conf.set("juicefs.meta", "a");
    Settings settings = new Settings(conf, "vol");
    assertEquals("a", settings.get("meta", ""));
    conf.set("juicefs.vol.meta", "b");
    assertEquals("b", settings.get("meta", ""));
    conf.set("sluice.meta", "c");
    assertEquals("c", settings.get("meta", ""));
    conf.set("sluice.vol.meta", "d");
    assertEquals("d", settings.get("meta", ""));
    assertEquals("x", settings.get("superuser", "x"));
    conf.set("juicefs.name", "other");
    assertEquals("c", new Settings(conf, "vol").get("meta", ""), "another volume by name");
  }
}
