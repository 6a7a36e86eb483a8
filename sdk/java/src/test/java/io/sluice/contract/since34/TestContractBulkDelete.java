package io.sluice.contract.since34;

import io.sluice.contract.SluiceContract;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.contract.AbstractContractBulkDeleteTest;
import org.apache.hadoop.fs.contract.AbstractFSContract;

/** Hadoop's tests of many deletes at once. */
public class TestContractBulkDelete extends AbstractContractBulkDeleteTest {
  @Override
  protected AbstractFSContract createContract(Configuration conf) {
    return new SluiceContract(conf);
  }

  @Override
  protected int getExpectedPageSize() {
    return 250;
  }
}
