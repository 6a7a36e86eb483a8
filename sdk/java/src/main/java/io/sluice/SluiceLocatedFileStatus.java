package io.sluice;

import org.apache.hadoop.fs.BlockLocation;
import org.apache.hadoop.fs.EtagSource;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.LocatedFileStatus;

/** A status with the places of the file's blocks. */
final class SluiceLocatedFileStatus extends LocatedFileStatus implements EtagSource {
  private static final long serialVersionUID = 1;

  private final String etag;

  SluiceLocatedFileStatus(FileStatus status, BlockLocation[] locations) {
    super(status, locations);
    etag = status instanceof EtagSource ? ((EtagSource) status).getEtag() : null;
  }

  @Override
  public String getEtag() {
    return etag;
  }
}
