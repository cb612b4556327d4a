#include "millstream/core/shape.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "millstream/core/column.h"
#include "millstream/core/digest.h"
#include "millstream/core/error.h"
#include "millstream/core/schema.h"

namespace millstream {
namespace {

std::string refusal(const std::function<void()>& function) {
  try {
    function();
  } catch (const ArgumentError& error) {
    return error.what();
  }
  return "";
}

TEST(Shape, CountsItsElements) {
  EXPECT_EQ(Shape().elements(), 1);
  EXPECT_EQ(Shape().rank(), 0);
  EXPECT_EQ(Shape({28, 28, 3}).elements(), 2352);
  EXPECT_EQ(Shape({5, 0, 3}).elements(), 0);
  EXPECT_EQ(Shape({0, 4}).elements(), 0);
  EXPECT_THROW((Shape{0, std::int64_t{1} << 60, 4}), ArgumentError);
  EXPECT_EQ(Shape({28, 14})[1], 14);
}

TEST(Shape, PrintsAsATuple) {
  EXPECT_EQ(Shape().str(), "()");
  EXPECT_EQ(Shape({3}).str(), "(3,)");
  EXPECT_EQ(Shape({28, 28, 1}).str(), "(28, 28, 1)");
}

TEST(Shape, ComparesExtentsAndRank) {
  EXPECT_EQ(Shape({2, 3}), Shape({2, 3}));
  EXPECT_NE(Shape({2, 3}), Shape({3, 2}));
  EXPECT_NE(Shape({2}), Shape({2, 1}));
  EXPECT_NE(Shape(), Shape({1}));
}

TEST(Shape, HoldsUpToItsLargestRank) {
  const std::vector<std::int64_t> extents(Shape::kMaxRank, 2);
  EXPECT_EQ(Shape(extents).elements(), std::int64_t{1} << Shape::kMaxRank);
  const std::vector<std::int64_t> more(Shape::kMaxRank + 1, 2);
  EXPECT_EQ(refusal([&] { Shape shape(more); }),
            "a value may have at most 12 dimensions, not 13");
}

TEST(Shape, RejectsNegativeExtents) {
  EXPECT_EQ(refusal([] { Shape({3, -1}); }), "a dimension must be at least 0, not -1");
}

TEST(Shape, RejectsTooManyElements) {
  constexpr std::int64_t kLarge = std::int64_t{1} << 40;
  EXPECT_NE(refusal([] { Shape({kLarge, kLarge}); }), "");
  EXPECT_NE(refusal([] { Shape({kLarge, std::int64_t{1} << 20}); }), "");
  EXPECT_EQ(Shape({kLarge, std::int64_t{1} << 18}).elements(), std::int64_t{1} << 58);
}

TEST(Schema, FieldsPrintAndMeasure) {
  const Field field = {"image", DType::kFloat32, {28, 28, 1}};
  EXPECT_EQ(str(field), "image: float32(28, 28, 1)");
  EXPECT_EQ(byte_size(field), 28 * 28 * 4);
}

TEST(Schema, FindsFieldsByName) {
  const Schema schema = {{"image", DType::kUint8, {4}}, {"label", DType::kInt64, {}}};
  EXPECT_EQ(field_named(schema, "label", "a test"), 1);
}

TEST(Schema, ErrorNamesMissingAndExistingFields) {
  const Schema schema = {{"image", DType::kUint8, {4}}, {"label", DType::kInt64, {}}};
  EXPECT_EQ(refusal([&] { field_named(schema, "lable", "normalize(lable)"); }),
            "normalize(lable): there is no field 'lable', only 'image', 'label'");
}

TEST(Column, RowsAreDenseOrScattered) {
  std::byte bytes[64];
  Column column = {DType::kInt32, {2}, bytes, 16, nullptr};
  EXPECT_EQ(column.row_bytes(), 8);
  EXPECT_EQ(column.row(3), bytes + 48);
  std::byte* rows[] = {bytes + 5, bytes};
  column.rows = rows;
  EXPECT_EQ(column.row(0), bytes + 5);
  EXPECT_EQ(column.row(1), bytes);
}

TEST(Digest, DependsOnValuesOrderAndBoundaries) {
  const auto digest = [](auto... values) {
    Digest result;
    (result.add(values), ...);
    return result.value();
  };
  using std::string_view;
  EXPECT_EQ(digest(std::int64_t{1}, std::int64_t{2}),
            digest(std::int64_t{1}, std::int64_t{2}));
  EXPECT_NE(digest(std::int64_t{1}, std::int64_t{2}),
            digest(std::int64_t{2}, std::int64_t{1}));
  EXPECT_NE(digest(std::int64_t{0}), digest(std::int64_t{0}, std::int64_t{0}));
  EXPECT_NE(digest(string_view("ab"), string_view("c")),
            digest(string_view("a"), string_view("bc")));
}

}  // namespace
}  // namespace millstream
