CREATE TABLE readings (
    time timestamptz NOT NULL,
    device text NOT NULL,
    site text,
    temperature double precision,
    humidity double precision,
    n bigint,
    mean double precision,
    score double precision
);
