#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "millstream/core/error.h"
#include "millstream/loader/batch.h"
#include "millstream/loader/plan.h"

namespace millstream {

/// Computed samples: "x" is three int32 and "y" an int64, both made from the index.
/// Counts its reads. Reading `bad_sample` throws.
class CountingSource final : public Source {
 public:
  explicit CountingSource(std::int64_t size, bool resident = false,
                          std::int64_t bad_sample = -1)
      : size_(size), resident_(resident), bad_sample_(bad_sample) {}

  std::int64_t size() const noexcept override { return size_; }
  const Schema& schema() const noexcept override { return schema_; }
  Traits traits() const noexcept override {
    return {.waits = !resident_, .may_fail = !resident_};
  }
  void prepare(std::span<const std::int64_t>) const noexcept override {}
  WorkerPool* worker_pool() const noexcept override { return nullptr; }
  void read(const Request& request, Rows& rows) const override {
    const auto indices = request.indices;
    const auto& [columns, memory] = rows;
    reads_.fetch_add(static_cast<std::int64_t>(indices.size()));
    for (std::size_t k = 0; k < indices.size(); ++k) {
      const std::int64_t index = indices[k];
      if (index == bad_sample_) throw DataError(text("sample ", index, " is bad"));
      const auto low = static_cast<std::int32_t>(index);
      const std::int32_t x[3] = {low, low + 1, -low};
      put(columns[0], k, x, sizeof(x), memory);
      const std::int64_t y = index * 10;
      const auto narrow = static_cast<std::int32_t>(y);
      if (columns[1].dtype == DType::kInt32) {
        put(columns[1], k, &narrow, sizeof(narrow), memory);
      } else {
        put(columns[1], k, &y, sizeof(y), memory);
      }
    }
  }

  std::int64_t reads() const { return reads_.load(); }

 private:
  static void put(const Column& column, std::size_t k, const void* value,
                  std::size_t bytes, Memory& memory) {
    if (column.data == nullptr) {
      column.rows[k] = memory.allocate(static_cast<std::int64_t>(bytes));
    }
    std::memcpy(column.row(static_cast<std::int64_t>(k)), value, bytes);
  }

  std::int64_t size_;
  bool resident_;
  std::int64_t bad_sample_;
  Schema schema_{{"x", DType::kInt32, {3}}, {"y", DType::kInt64, {}}};
  mutable std::atomic<std::int64_t> reads_{0};
};

inline std::shared_ptr<const Plan> sample_plan(std::shared_ptr<const Source> source,
                                               std::int64_t batch_size,
                                               Remainder remainder = Remainder::kPad,
                                               Transforms before = {},
                                               Transforms after = {}) {
  Schedule schedule(std::make_shared<Shuffle>(source->size()), batch_size, remainder);
  return std::make_shared<Plan>(std::move(source), std::move(schedule),
                                std::move(before), std::move(after));
}

/// The bytes of a batch and its mask, as `Plan::batch` makes them.
inline std::vector<std::byte> specified(const Plan& plan, const Position& position) {
  const Layout layout(plan.schema(), plan.batch_size());
  const auto block = std::make_shared<const Block>(layout.bytes());
  std::memset(block->data(), 0, static_cast<std::size_t>(layout.bytes()));
  const std::byte* data = block->data();
  const Batch batch(layout, block);
  plan.batch(position, batch.columns(), batch.mask());
  return {data, data + layout.bytes()};
}

/// The bytes of a batch and its mask, in the layout of `specified`, with zeros in the
/// gaps.
inline std::vector<std::byte> bytes_of(const Plan& plan, const Batch& batch) {
  const Layout layout(plan.schema(), plan.batch_size());
  std::vector<std::byte> bytes(static_cast<std::size_t>(layout.bytes()));
  for (std::size_t i = 0; i < batch.columns().size(); ++i) {
    const Column& column = batch.columns()[i];
    std::memcpy(bytes.data() + layout.offset(i), column.data,
                static_cast<std::size_t>(column.stride * layout.rows()));
  }
  std::memcpy(bytes.data() + layout.mask_offset(), batch.mask(),
              static_cast<std::size_t>(layout.rows()));
  return bytes;
}

inline std::vector<DType> dtypes_of(const Plan& plan) {
  std::vector<DType> dtypes;
  for (const Field& field : plan.schema()) dtypes.push_back(field.dtype);
  return dtypes;
}

}  // namespace millstream
