#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "millstream/source/source.h"
#include "temporary_folder.h"

namespace millstream {

/// A field and all its rows, dense, in the dtype that the source stores.
struct TrueField {
  Field field;
  std::string bytes;
};

/// A source to test and its expected contents.
///
/// To run a source through the suite:
///   INSTANTIATE_TEST_SUITE_P(Mine, SourceConformance, testing::Values(...),
///   case_name);
struct SourceCase {
  std::string name;
  std::vector<TrueField> truth;
  /// Writes the files into the folder and opens the source.
  std::function<std::shared_ptr<const Source>(const TemporaryFolder&)> open;
};

std::string case_name(const testing::TestParamInfo<SourceCase>& info);
void PrintTo(const SourceCase& source_case, std::ostream* out);

/// `rows` rows of a field with different values that fit every dtype.
TrueField counted(const Field& field, std::int64_t rows);

/// Tests the contract of `Source`.
class SourceConformance : public testing::TestWithParam<SourceCase> {
 protected:
  void SetUp() override;

  std::int64_t size() const { return source_->size(); }
  /// At most `most` random samples, some of them twice, and at most a few megabytes.
  std::vector<std::int64_t> some(std::size_t most) const;
  /// Reads `indices` into rows `gap` bytes apart and compares every byte, including
  /// gaps.
  void expect_read(const std::vector<std::int64_t>& indices,
                   std::int64_t gap = 0) const;
  /// The expected bytes of one row.
  std::string_view truth(std::size_t field, std::int64_t index) const;

  TemporaryFolder folder_;
  std::shared_ptr<const Source> source_;
};

}  // namespace millstream
