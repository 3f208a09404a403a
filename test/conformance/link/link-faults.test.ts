// The suite of faults on every carrier there is; the first is none.
import { openDirect, openFaultyGrpc, openFaultyHttp } from './faulty-carrier.ts';
import { describeFaults } from './link-faults.ts';

describeFaults('the queue itself', openDirect);
describeFaults('HTTP', openFaultyHttp);
describeFaults('gRPC', openFaultyGrpc);
