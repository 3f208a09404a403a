// The conformance suite for every implementation of `Store`.
import { describe } from 'vitest';
import type { Store } from '../../../src/store/store.ts';
import { describeDeliveries, describeRemovals } from './store-deliveries.ts';
import {
  describeEndpoints,
  describeFiles,
  describeResources,
  describeVersions,
  describeWorkersAndKeys,
} from './store-endpoints.ts';
import { describeGroups, describeJobs } from './store-jobs.ts';
import { describeChunks, describeLog, describePayloads } from './store-payloads.ts';
import { describeList, describeQueue } from './store-queue.ts';
import { openForEachTest } from './store-under-test.ts';
import { describeWrites } from './store-writes.ts';

/** Runs the suite on stores from `open`, each of them empty; the suite closes them. */
export function describeStore(name: string, open: () => Promise<Store> | Store): void {
  describe(`a store: ${name}`, () => {
    openForEachTest(open);
    describe('a write', describeWrites);
    describe('a job', describeJobs);
    describe('the queue', describeQueue);
    describe('the job list', describeList);
    describe('groups', describeGroups);
    describe('removals', describeRemovals);
    describe('payloads', describePayloads);
    describe('chunks', describeChunks);
    describe('a log', describeLog);
    describe('deliveries', describeDeliveries);
    describe('an endpoint', describeEndpoints);
    describe('a resource', describeResources);
    describe('a version', describeVersions);
    describe('a file', describeFiles);
    describe('workers and keys', describeWorkersAndKeys);
  });
}
