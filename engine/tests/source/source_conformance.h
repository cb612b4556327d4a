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

/// One source to try, and what it should hold.
///
/// To run a source through the suite:
///   INSTANTIATE_TEST_SUITE_P(Mine, SourceConformance, testing::Values(...),
///   case_name);
struct SourceCase {
  std::string name;
  std::vector<TrueField> truth;
  /// Writes what it needs into the folder and opens it.
  std::function<std::shared_ptr<const Source>(const TemporaryFolder&)> open;
};

std::string case_name(const testing::TestParamInfo<SourceCase>& info);
void PrintTo(const SourceCase& source_case, std::ostream* out);

/// `rows` rows of a field with values that differ and fit every dtype.
TrueField counted(const Field& field, std::int64_t rows);

/// What every source promises, whatever it reads from.
class SourceConformance : public testing::TestWithParam<SourceCase> {
 protected:
  void SetUp() override;

  std::int64_t size() const { return source_->size(); }
  /// Samples in no order, some of them twice: as many, or a few megabytes of them.
  std::vector<std::int64_t> some(std::size_t most) const;
  /// Reads `indices` with rows `gap` bytes apart and compares every byte, gaps too.
  void expect_read(const std::vector<std::int64_t>& indices,
                   std::int64_t gap = 0) const;
  /// The true bytes of one row.
  std::string_view truth(std::size_t field, std::int64_t index) const;

  TemporaryFolder folder_;
  std::shared_ptr<const Source> source_;
};

}  // namespace millstream
