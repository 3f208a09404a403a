// The settings of Postgres in benchmarks: everything committed is on disk, the whole benchmark fits into memory, and
// no checkpoint runs in it.
export const DURABLE = {
  fsync: 'on',
  full_page_writes: 'on',
  shared_buffers: '1GB',
  max_wal_size: '4GB',
  max_connections: '200',
};
