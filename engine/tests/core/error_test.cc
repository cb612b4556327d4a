#include "millstream/core/error.h"

#include <gtest/gtest.h>

#include <string>

namespace millstream {
namespace {

std::string words(const ErrorFields& fields, ErrorKind kind = ErrorKind::kData) {
  return composed(kind, fields);
}

TEST(Error, MessageNamesFileAndOffset) {
  EXPECT_EQ(
      words({.file = "x.npy", .offset = 12, .expected = "the magic", .found = "'abc'"}),
      "x.npy: offset 12: expected the magic, found 'abc'");
  EXPECT_EQ(words({.file = FileName("x.npz", "im\nage"), .expected = "a header"}),
            "x.npz[im\\x0aage]: expected a header");
  EXPECT_EQ(words({.file = "x", .text = "cannot be opened"}), "x: cannot be opened");
}

TEST(Error, MessageNamesLineAndColumn) {
  ErrorFields fields = {.file = "x.csv",
                        .line = 3,
                        .column = 2,
                        .field = "age",
                        .expected = "a number",
                        .found = "'old'"};
  EXPECT_EQ(words(fields),
            "x.csv: line 3, column 2 ('age'): expected a number, found 'old'");
  fields.field = std::string(40, 'a');
  EXPECT_EQ(words(fields), text("x.csv: line 3, column 2 ('", std::string(24, 'a'),
                                "'): expected a number, found 'old'"));
  fields.field = "column1";
  EXPECT_EQ(words(fields), "x.csv: line 3, column 2: expected a number, found 'old'");
  fields.field.clear();
  fields.column.reset();
  EXPECT_EQ(words(fields), "x.csv: line 3: expected a number, found 'old'");
}

TEST(Error, MessageNamesSampleAndField) {
  EXPECT_EQ(words({.sample = 7, .field = "label", .text = "holds no number"}),
            "label: sample 7 holds no number");
  EXPECT_EQ(words({.file = "x.bin",
                   .offset = 5,
                   .sample = 7,
                   .field = "label",
                   .expected = "a value below 10",
                   .found = "200"}),
            "x.bin: offset 5: label: sample 7: expected a value below 10, found 200");
}

TEST(Error, MessageAppendsTheText) {
  EXPECT_EQ(words({.expected = "a", .found = "b", .text = "open it again"}),
            "expected a, found b; open it again");
  EXPECT_EQ(words({.found = "b"}), "found b");
  EXPECT_EQ(words({}), "");
}

TEST(Error, MessageNamesTheDeadProcess) {
  EXPECT_EQ(words({.sample = 6, .process = 12, .text = "exited with status 3"},
                  ErrorKind::kWorkerDied),
            "worker process 12 exited with status 3 while it made sample 6");
  EXPECT_EQ(words({.sample = 6, .process = 12, .text = "has taken too long"},
                  ErrorKind::kWorkerStalled),
            "sample 6 has taken too long");
}

TEST(Error, MessageEscapesZeroBytes) {
  EXPECT_STREQ(DataError(std::string("a\0b", 3)).what(), "a\\x00b");
}

TEST(Error, AddSetsOnlyEmptyFields) {
  DataError error({.offset = 3, .expected = "a", .found = "b"});
  error.add({.file = "x.npy", .offset = 9, .field = "image"});
  EXPECT_STREQ(error.what(), "x.npy: offset 3: expected a, found b");
  EXPECT_EQ(error.fields().field, "image");
  error.add({.file = "other", .sample = 4, .field = "other"});
  EXPECT_STREQ(error.what(), "x.npy: offset 3: image: sample 4: expected a, found b");
}

TEST(Error, OuterLayersAddFields) {
  const auto read = []() -> int {
    throw IoError(5, {.offset = 3, .text = "cannot be read"});
  };
  try {
    adding([] { return ErrorFields{.file = "x.npy"}; }, read);
    FAIL();
  } catch (const IoError& error) {
    EXPECT_EQ(error.code(), 5);
    EXPECT_STREQ(error.what(), "x.npy: offset 3: cannot be read");
  }
  EXPECT_EQ(adding([] { return ErrorFields(); }, [] { return 4; }), 4);
}

TEST(Error, HasAKind) {
  EXPECT_EQ(name(DataError("x").kind()), "data");
  EXPECT_EQ(name(IoError(2, {}).kind()), "io");
  EXPECT_EQ(name(ArgumentError("x").kind()), "argument");
  EXPECT_EQ(name(Closed("x").kind()), "closed");
  EXPECT_EQ(name(Cancelled("x").kind()), "cancelled");
  EXPECT_EQ(name(WorkerDied("x").kind()), "worker_died");
  EXPECT_EQ(name(WorkerStalled("x").kind()), "worker_stalled");
  EXPECT_EQ(name(FunctionError("x", 1, "", nullptr).kind()), "function");
  EXPECT_EQ(name(ThreadError("x", "y").kind()), "thread");
  EXPECT_EQ(name(OutOfMemory("x").kind()), "memory");
  EXPECT_EQ(name(Error("x").kind()), "other");
}

}  // namespace
}  // namespace millstream
