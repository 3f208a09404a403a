// Fails each job.
export default function run(): never {
  throw new Error('this job fails');
}
