#include "millstream/transform/origin.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "millstream/transform/chain.h"

namespace millstream {
namespace {

TEST(Origin, AppendsTheEpochAndTheSampleOfEachRow) {
  const Schema input = {{"x", DType::kUint8, {}}};
  const Chain chain(input, {std::make_shared<Origin>()});
  const std::vector<std::int64_t> indices = {7, 0, (std::int64_t{5} << 32) + 3};
  const std::vector<std::uint32_t> epochs = {2, 4000000000u, 2};
  std::vector<std::byte> x = {std::byte{9}, std::byte{8}, std::byte{7}};
  std::vector<std::uint32_t> rows(6);
  auto* data = reinterpret_cast<std::byte*>(rows.data());
  const std::vector<Column> in = {{DType::kUint8, {}, x.data(), 1, nullptr}};
  const std::vector<Column> out = {in[0],
                                   {DType::kUint32, {}, data, 8, nullptr},
                                   {DType::kUint32, {}, data + 4, 8, nullptr}};
  Memory memory;
  Rows target{out, memory};
  chain.run({indices, epochs}, {in, memory}, target);
  EXPECT_EQ(rows, (std::vector<std::uint32_t>{2, 7, 4000000000u, 0, 2, 3}));
  EXPECT_EQ(x, (std::vector<std::byte>{std::byte{9}, std::byte{8}, std::byte{7}}));
}

TEST(Origin, ItsFieldsHaveNamesThatNoOtherFieldHas) {
  Schema schema = {{"x", DType::kUint8, {2}}};
  for (int i = 0; i < 3; ++i) {
    schema = Origin().flow(schema).schema;
    for (const std::size_t added : {schema.size() - 2, schema.size() - 1}) {
      EXPECT_EQ(schema[added].dtype, DType::kUint32);
      EXPECT_EQ(schema[added].shape, Shape());
      EXPECT_EQ(std::ranges::count(schema, schema[added].name, &Field::name), 1);
    }
  }
}

TEST(Origin, DoesNotChangeTheStageNumbersOfOthers) {
  EXPECT_FALSE(Origin().draws());
  EXPECT_EQ(static_cast<std::uint32_t>(StageKind::kMap), 0x40000u);
}

}  // namespace
}  // namespace millstream
