package io.sluice.contract.v35;

import io.sluice.contract.SluiceContract;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.contract.AbstractContractPathHandleTest;
import org.apache.hadoop.fs.contract.AbstractFSContract;

/** Hadoop's tests of files that are found again. */
public class TestContractPathHandle extends AbstractContractPathHandleTest {
  @Override
  protected AbstractFSContract createContract(Configuration conf) {
    return new SluiceContract(conf);
  }
}
