// Runs the suite of network faults on every carrier, and on the queue without a carrier.
import { openDirect, openFaultyGrpc, openFaultyHttp } from './faulty-carrier.ts';
import { describeFaults } from './link-faults.ts';

describeFaults('the queue itself', openDirect);
describeFaults('HTTP', openFaultyHttp);
describeFaults('gRPC', openFaultyGrpc);
