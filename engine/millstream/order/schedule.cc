#include "millstream/order/schedule.h"

#include <algorithm>
#include <utility>

#include "millstream/core/error.h"

namespace millstream {

Remainder remainder_named(std::string_view name) {
  if (name == "pad") return Remainder::kPad;
  if (name == "drop") return Remainder::kDrop;
  if (name == "wrap") return Remainder::kWrap;
  throw ArgumentError(
      text("remainder must be 'pad', 'drop' or 'wrap', not '", name, "'"));
}

Schedule::Schedule(std::shared_ptr<const Order> order, std::int64_t batch_size,
                   Remainder remainder)
    : order_(std::move(order)), batch_size_(batch_size), remainder_(remainder) {
  if (batch_size < 1 || batch_size > (std::int64_t{1} << 31)) {
    throw ArgumentError(
        text("batch_size must be between 1 and 2^31, not ", batch_size));
  }
  const std::int64_t length = order_->length();
  const std::int64_t whole = length / batch_size;
  if (remainder == Remainder::kDrop && whole == 0) {
    throw ArgumentError(text("drop_last leaves no batch: batch_size is ", batch_size,
                             ", but there are only ", length, " samples"));
  }
  steps_ = whole + (remainder != Remainder::kDrop && length % batch_size != 0 ? 1 : 0);
}

Position Schedule::next(const Position& position) const noexcept {
  Position after = position;
  if (++after.step >= steps_) {
    after.step = 0;
    ++after.epoch;
  }
  return after;
}

std::int64_t Schedule::valid_rows(const Position& position) const noexcept {
  if (remainder_ == Remainder::kWrap) return batch_size_;
  const std::int64_t left = order_->length() - position.step * batch_size_;
  return std::clamp<std::int64_t>(left, 0, batch_size_);
}

Schedule::Place Schedule::place(const Position& position,
                                std::int64_t row) const noexcept {
  if (remainder_ != Remainder::kWrap) {
    return {position.epoch, position.step * batch_size_ + row};
  }
  __extension__ using Wide = unsigned __int128;
  const auto length = static_cast<std::uint64_t>(order_->length());
  const Wide steps =
      static_cast<Wide>(position.epoch) * static_cast<std::uint64_t>(steps_) +
      static_cast<std::uint64_t>(position.step);
  const Wide at =
      steps * static_cast<std::uint64_t>(batch_size_) + static_cast<std::uint64_t>(row);
  return {static_cast<std::uint32_t>(at / length),
          static_cast<std::int64_t>(at % length)};
}

void Schedule::run(const Position& position, std::int64_t first_row,
                   std::span<std::int64_t> out) const {
  const std::int64_t length = order_->length();
  Place from = place(position, first_row);
  while (!out.empty() && from.position < length) {
    const auto count = static_cast<std::size_t>(
        std::min(length - from.position, static_cast<std::int64_t>(out.size())));
    order_->run(position.seed, from.epoch, from.position, out.first(count));
    out = out.subspan(count);
    if (remainder_ != Remainder::kWrap) break;
    from = {from.epoch + 1, 0};
  }
  std::ranges::fill(out, -1);
}

void Schedule::epochs(const Position& position, std::int64_t first_row,
                      std::span<std::uint32_t> out) const {
  if (out.empty()) return;
  for (Place at = place(position, first_row);; at = {at.epoch + 1, 0}) {
    const auto left = static_cast<std::size_t>(order_->length() - at.position);
    const std::size_t rows =
        remainder_ == Remainder::kWrap ? std::min(left, out.size()) : out.size();
    std::ranges::fill(out.first(rows), at.epoch);
    out = out.subspan(rows);
    if (out.empty()) return;
  }
}

void Schedule::add_to(Digest& digest) const {
  digest.add(batch_size_).add(static_cast<std::int64_t>(remainder_));
  order_->add_to(digest);
}

}  // namespace millstream
