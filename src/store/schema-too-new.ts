// The error of a database that a newer version of the program has written.

export class SchemaTooNewError extends Error {
  override readonly name = 'SchemaTooNewError';

  constructor(found: number, known: number) {
    super(
      `The database has schema version ${found}; this version of millrace knows versions up to ` +
        `${known}. Use the version of millrace that wrote it, or a newer one.`,
    );
  }
}
