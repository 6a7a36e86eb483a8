package io.sluice.contract;

import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.contract.AbstractBondedFSContract;

/** What Hadoop's tests may expect: contract/sluice.xml. */
public class SluiceContract extends AbstractBondedFSContract {
  public SluiceContract(Configuration conf) {
    super(conf);
    addConfResource("contract/sluice.xml");
  }

  @Override
  public String getScheme() {
    return "sluice";
  }
}
